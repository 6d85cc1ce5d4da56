package k3s

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
)

func TestKeys_AreSortedByName(t *testing.T) {
	require.True(t, slices.IsSortedFunc(keys, func(a, b Key) int { return strings.Compare(a.Name, b.Name) }))
	require.Len(t, ServerKeys(), 125)
	require.Len(t, AgentKeys(), 46)
}

func TestServerKey(t *testing.T) {
	key, found := ServerKey("cluster-cidr")
	require.True(t, found)
	require.Equal(t, Key{Name: "cluster-cidr", Type: List, Server: true, Owner: "serverConfig.clusterCidr", Critical: true}, key)

	_, found = ServerKey("disable-apiserver-lb")
	require.False(t, found, "only an agent knows it")
	_, found = ServerKey("no-such-key")
	require.False(t, found)
}

func TestAgentKey(t *testing.T) {
	key, found := AgentKey("token")
	require.True(t, found)
	require.True(t, key.OperatorOwned())

	_, found = AgentKey("tls-san")
	require.False(t, found, "only a server knows it")

	key, found = AgentKey("bind-address")
	require.True(t, found)
	require.Empty(t, key.Owner, "serverConfig doesn't reach workers")
}

// Every field of the API belongs to exactly the settings that name it, and every owner is a field.
func TestKeys_OwnersAreTheFieldsOfTheAPI(t *testing.T) {
	fields := map[string]bool{}
	for prefix, config := range map[string]any{
		"serverConfig.": bootstrapv1.ServerConfig{}, "agentConfig.": bootstrapv1.AgentConfig{},
	} {
		structure := reflect.TypeOf(config)
		for i := range structure.NumField() {
			name, _, _ := strings.Cut(structure.Field(i).Tag.Get("json"), ",")
			if name != "extraConfig" {
				fields[prefix+name] = false
			}
		}
	}
	for _, key := range keys {
		if key.Owner == "" || key.OperatorOwned() {
			continue
		}
		require.Contains(t, fields, key.Owner, key.Name)
		fields[key.Owner] = true
	}
	for field, owned := range fields {
		require.True(t, owned, field)
	}
}

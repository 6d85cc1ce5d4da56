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

// withoutKey are the fields that have no setting of their own: they are files, arguments or other sources of one.
var withoutKey = []string{
	"agentConfig.cloudProvider", "agentConfig.kubeletConfiguration", "agentConfig.providerID", "agentConfig.registries",
	"serverConfig.datastore.endpointFrom",
}

// Every field of the API belongs to exactly the settings that name it, and every owner is a field.
func TestKeys_OwnersAreTheFieldsOfTheAPI(t *testing.T) {
	fields := map[string]bool{}
	addFields(fields, "serverConfig.", reflect.TypeOf(bootstrapv1.ServerConfig{}))
	addFields(fields, "agentConfig.", reflect.TypeOf(bootstrapv1.AgentConfig{}))
	for _, key := range keys {
		if key.Owner == "" || key.OperatorOwned() {
			continue
		}
		require.Contains(t, fields, key.Owner, key.Name)
		fields[key.Owner] = true
	}
	for field, owned := range fields {
		require.Equal(t, !slices.Contains(withoutKey, field), owned, field)
	}
}

// addFields collects the fields of a struct by their path in the API. A group of fields counts only if a setting names
// it, as etcd-s3 does.
func addFields(fields map[string]bool, prefix string, structure reflect.Type) {
	for i := range structure.NumField() {
		field := structure.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		path := prefix + name
		switch field.Type {
		case reflect.TypeOf(bootstrapv1.ExtraConfig{}):
		case reflect.TypeOf(bootstrapv1.EtcdSnapshotsSpec{}), reflect.TypeOf(bootstrapv1.DatastoreSpec{}):
			addFields(fields, path+".", field.Type)
		case reflect.TypeOf(bootstrapv1.SnapshotS3Spec{}):
			fields[path] = false
			addFields(fields, path+".", field.Type)
		default:
			fields[path] = false
		}
	}
}

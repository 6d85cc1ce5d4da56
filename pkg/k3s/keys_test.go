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

// Each setting of K3s that isn't the operator's has a field or is in extraConfig, and has K3s' type in config.yaml.
func TestKeys_EveryOneCanBeExpressed(t *testing.T) {
	inExtra := func(keys []Key) map[string]string {
		values := map[Type]string{String: `"x"`, List: `"x"`, Bool: `true`, Int: `"1"`, Duration: `"1m"`}
		extra := map[string]string{}
		for _, key := range keys {
			if key.Owner == "" {
				extra[key.Name] = values[key.Type]
			}
		}
		return extra
	}
	requireAll := func(t *testing.T, keys []Key, c Config) {
		t.Helper()
		kinds := map[Type]any{String: "", List: []string{}, Bool: true, Int: int64(0), Duration: ""}
		for _, key := range keys {
			if key.OperatorOwned() || key.Name == "kube-controller-arg" { // an old name of kube-controller-manager-arg
				continue
			}
			require.Contains(t, c, key.Name)
			require.IsType(t, kinds[key.Type], c[key.Name], key.Name)
		}
	}

	spec := everySetting()
	spec.ServerConfig.ExtraConfig, spec.AgentConfig.ExtraConfig = extra(inExtra(ServerKeys())), nil
	server := Server{Endpoint: testEndpoint, Token: "t", AgentToken: "a", Secret: Config{
		"datastore-cafile": "/f", "datastore-certfile": "/f", "datastore-keyfile": "/f", "etcd-s3-access-key": "k",
		"etcd-s3-secret-key": "k", "etcd-s3-session-token": "k", "etcd-s3-endpoint-ca": "/f",
	}}
	c, err := ServerConfig(server, spec)
	require.NoError(t, err)
	requireAll(t, ServerKeys(), c)

	spec.ServerConfig.ExtraConfig, spec.AgentConfig.ExtraConfig = nil, extra(inExtra(AgentKeys()))
	c, err = AgentConfig(Agent{Endpoint: testEndpoint, Token: "t"}, spec)
	require.NoError(t, err)
	requireAll(t, AgentKeys(), c)
}

package k3s

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// operators are the settings that nobody but the operator may set: secrets, who founds and who joins, the etcd of a
// server, and what a server that is a Node of Cluster API can't be without.
var operators = []string{
	"agent-token", "agent-token-file", "cluster-init", "cluster-reset", "cluster-reset-restore-path", "config", "disable-agent",
	"disable-apiserver", "disable-controller-manager", "disable-etcd", "rootless", "server", "supervisor-port", "token", "token-file",
}

// inK3s is a line of testdata/keys.txt.
type inK3s struct{ command, name, kind string }

// settingsOfK3s are what K3s says about itself; the table of this package is compared with it.
func settingsOfK3s(t *testing.T, command string) []inK3s {
	t.Helper()
	data, err := os.ReadFile("testdata/keys.txt")
	require.NoError(t, err)
	var settings []inK3s
	for line := range strings.Lines(string(data)) {
		if words := strings.Fields(line); words[0] == command {
			settings = append(settings, inK3s{words[0], words[1], words[2]})
		}
	}
	return settings
}

func TestKeys_AreThoseOfK3sWithItsTypes(t *testing.T) {
	for command, table := range map[string][]Key{"server": ServerKeys(), "agent": AgentKeys()} {
		var want, got []string
		for _, setting := range settingsOfK3s(t, command) {
			want = append(want, setting.name+" "+setting.kind)
		}
		var decided []string
		for _, key := range table {
			got = append(got, key.Name+" "+string(key.Type))
			if key.OperatorOwned() {
				decided = append(decided, key.Name)
			}
		}
		require.Equal(t, want, got, command)
		require.Subset(t, operators, decided, "of %s", command)
	}
}

// Each setting of K3s that isn't the operator's can be said by a field or by extraConfig, and stands in the config.yaml
// in the type in which K3s reads it.
func TestKeys_EveryOneCanBeExpressed(t *testing.T) {
	spec := everySetting()
	spec.ServerConfig.ExtraConfig, spec.AgentConfig.ExtraConfig = extra(inExtraOnly(ServerKeys())), nil
	server := Server{Endpoint: testEndpoint, Token: "t", AgentToken: "a", Secret: Config{
		"datastore-cafile": "/f", "datastore-certfile": "/f", "datastore-keyfile": "/f", "etcd-s3-access-key": "k",
		"etcd-s3-secret-key": "k", "etcd-s3-session-token": "k", "etcd-s3-endpoint-ca": "/f",
	}}
	c, err := ServerConfig(server, spec)
	require.NoError(t, err)
	requireExpressed(t, "server", c)

	spec.ServerConfig.ExtraConfig, spec.AgentConfig.ExtraConfig = nil, extra(inExtraOnly(AgentKeys()))
	c, err = AgentConfig(Agent{Endpoint: testEndpoint, Token: "t"}, spec)
	require.NoError(t, err)
	requireExpressed(t, "agent", c)
}

// inExtraOnly returns a value, as somebody might write it, for each setting that has no field.
func inExtraOnly(keys []Key) map[string]string {
	values := map[Type]string{String: `"x"`, List: `"x"`, Bool: `"true"`, Int: `"1"`, Duration: `"1m"`}
	extra := map[string]string{}
	for _, key := range keys {
		if key.Owner == "" {
			extra[key.Name] = values[key.Type]
		}
	}
	return extra
}

// requireExpressed checks that the config.yaml has every setting of a command in K3s' type, and nothing else.
func requireExpressed(t *testing.T, command string, c Config) {
	t.Helper()
	encoded, err := c.YAML()
	require.NoError(t, err)
	var written map[string]yaml.Node
	require.NoError(t, yaml.Unmarshal(encoded, &written))
	tags := map[string]string{"string": "!!str", "list": "!!seq", "bool": "!!bool", "int": "!!int", "duration": "!!str"}
	expressed := 0
	for _, setting := range settingsOfK3s(t, command) {
		node, found := written[setting.name]
		delete(written, setting.name)
		switch {
		case setting.name == "kube-controller-arg": // an old name of kube-controller-manager-arg
		case !found:
			require.Contains(t, operators, setting.name, "%s can't be said", setting.name)
		default:
			require.Equal(t, tags[setting.kind], node.Tag, setting.name)
			expressed++
		}
	}
	require.Empty(t, written, "%s doesn't know these", command)
	t.Logf("%d settings of k3s %s were written in K3s' type", expressed, command)
}

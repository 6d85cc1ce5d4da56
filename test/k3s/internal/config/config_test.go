package config

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// writeFiles writes config.yaml and drop-ins into a folder, and points K3s to it.
func writeFiles(t *testing.T, files map[string]string) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "config.yaml")
	require.NoError(t, os.MkdirAll(path+".d", 0o755))
	for name, content := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	if _, found := files["config.yaml"]; found {
		t.Setenv("K3S_CONFIG_FILE", path)
		return
	}
	t.Setenv("K3S_CONFIG_FILE", "")
}

func TestLoad_CommandLineBeatsFileBeatsEnvironment(t *testing.T) {
	t.Setenv("K3S_TOKEN", "env")
	for name, row := range map[string]struct {
		file string
		args []string
		want string
	}{
		"environment":  {"node-ip: 10.0.0.1", nil, "env"},
		"file":         {"{node-ip: 10.0.0.1, token: file}", nil, "file"},
		"command line": {"{node-ip: 10.0.0.1, token: file}", []string{"--token", "cli"}, "cli"},
	} {
		t.Run(name, func(t *testing.T) {
			writeFiles(t, map[string]string{"config.yaml": row.file})
			cfg, err := Load(CommandServer, row.args)
			require.NoError(t, err)
			assert.Equal(t, row.want, cfg.Token)
		})
	}
}

func TestLoad_TokenFileBeatsTokenAndIsTrimmed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte(" from-file\n"), 0o600))
	writeFiles(t, map[string]string{"config.yaml": "{node-ip: 10.0.0.1, token: direct, token-file: " + file + "}"})
	cfg, err := Load(CommandAgent, nil)
	require.NoError(t, err)
	assert.Equal(t, "from-file", cfg.Token)
}

func TestLoad_UnquotedTokensBecomeWhatYAMLMakesOfThem(t *testing.T) {
	for typed, want := range map[string]string{
		"0123": "83", "1_000": "1000", "0x1f": "31", "on": "true", "~": "",
		"12345678901234567890123456789012": "1.2345678901234567e+31", "abc #d": "abc", `"0123"`: "0123",
	} {
		writeFiles(t, map[string]string{"config.yaml": "node-ip: 10.0.0.1\ntoken: " + typed + "\n"})
		cfg, err := Load(CommandServer, nil)
		require.NoError(t, err, typed)
		assert.Equal(t, want, cfg.Token, typed)
	}
}

func TestLoad_DropInsReplaceAndAppend(t *testing.T) {
	writeFiles(t, map[string]string{
		"config.yaml":             "node-ip: 10.0.0.1\ntls-san: [a]\nnode-label: [x=1]\n",
		"config.yaml.d/10-a.yaml": "tls-san+: b\nnode-label: [y=2]\n",
		"config.yaml.d/20-b.yml":  "tls-san+: [c]\n",
		"config.yaml.d/ignored":   "tls-san: [z]\n",
	})
	cfg, err := Load(CommandServer, []string{"--tls-san", "d,e"})
	require.NoError(t, err)
	assert.Equal(t, []string{"a", "b", "c", "d", "e"}, cfg.Server.Control.SANs[:5])
	assert.Equal(t, []string{"y=2"}, cfg.NodeLabels)
}

func TestLoad_ServerSkipsUnknownKeysOfTheFileOnly(t *testing.T) {
	writeFiles(t, map[string]string{"config.yaml": "{node-ip: 10.0.0.1, no-such-key: x, token: t}"})
	cfg, err := Load(CommandServer, nil)
	require.NoError(t, err)
	assert.Equal(t, "t", cfg.Token)

	_, err = Load(CommandServer, []string{"--no-such-key=x"})
	assert.EqualError(t, err, "flag provided but not defined: -no-such-key")
}

func TestLoad_AgentRefusesUnknownAndServerKeys(t *testing.T) {
	for key, want := range map[string]string{
		"no-such-key":  "flag provided but not defined: -no-such-key",
		"cluster-init": "flag provided but not defined: -cluster-init",
		"agent-token":  "flag provided but not defined: -agent-token",
	} {
		writeFiles(t, map[string]string{"config.yaml": "{node-ip: 10.0.0.1, " + key + ": true}"})
		_, err := Load(CommandAgent, nil)
		assert.EqualError(t, err, want)
	}
}

func TestLoad_ServerDefaults(t *testing.T) {
	writeFiles(t, map[string]string{"config.yaml": "{node-ip: 10.0.0.1, node-name: S1, https-listen-port: \"7443\", service-cidr: 10.9.0.0/16}"})
	cfg, err := Load(CommandServer, nil)
	require.NoError(t, err)
	control := cfg.Server.Control
	assert.Equal(t, "s1", cfg.NodeName)
	assert.Equal(t, 7443, control.SupervisorPort)
	assert.Equal(t, 7444, control.APIServerPort)
	assert.Equal(t, "10.9.0.10", control.ClusterDNS.String())
	assert.Equal(t, "10.42.0.0/16", control.ClusterIPRange.String())
	assert.Equal(t, "vxlan", control.FlannelBackend)
	assert.Equal(t, PortRange{Base: 30000, Size: 2768}, control.ServiceNodePortRange)
	assert.Contains(t, control.SANs, "10.9.0.1")
}

func TestLoad_RefusesWrongValues(t *testing.T) {
	for file, want := range map[string]string{
		"node-ip: x": "invalid node-ip: invalid ip format 'x'",
		"{node-ip: 10.0.0.1, cluster-cidr: 10.1.1.1}":           "invalid cluster-cidr 10.1.1.1",
		"{node-ip: 10.0.0.1, https-listen-port: many}":          "invalid value",
		"{node-ip: 10.0.0.1, service-node-port-range: \"9-1\"}": "invalid port range",
	} {
		writeFiles(t, map[string]string{"config.yaml": file})
		_, err := Load(CommandServer, nil)
		assert.ErrorContains(t, err, want)
	}
}

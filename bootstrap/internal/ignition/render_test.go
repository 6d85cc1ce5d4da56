package ignition

import (
	"bytes"
	"compress/gzip"
	"io"
	"testing"

	ignconfig "github.com/coreos/ignition/v2/config/v3_4"
	"github.com/coreos/ignition/v2/config/v3_4/types"
	"github.com/stretchr/testify/require"
	"github.com/vincent-petithory/dataurl"
	"k8s.io/utils/ptr"

	"github.com/capk3s/capk3s/bootstrap/internal/bootdata"
	"github.com/capk3s/capk3s/pkg/k3s"
	"github.com/capk3s/capk3s/test/testenv/computer"
)

func testMachine(role bootdata.Role) bootdata.Machine {
	return bootdata.Machine{
		Role: role, Version: "v1.36.3+k3s1", Endpoint: k3s.Endpoint{Host: "cp", Port: 6443}, Config: k3s.Config{"token": "T"},
	}
}

// parse reads a config as Ignition does. There may be no warning either.
func parse(t *testing.T, data []byte) types.Config {
	t.Helper()
	config, report, err := ignconfig.Parse(data)
	require.NoError(t, err, report.String())
	require.Empty(t, report.Entries, report.String())
	require.Equal(t, "3.4.0", config.Ignition.Version)
	return config
}

// contentOf returns the bytes that Ignition gets from a resource.
func contentOf(t *testing.T, resource types.Resource) []byte {
	t.Helper()
	url, err := dataurl.DecodeString(*resource.Source)
	require.NoError(t, err)
	if ptr.Deref(resource.Compression, "") == "" {
		return url.Data
	}
	require.Equal(t, "gzip", *resource.Compression)
	reader, err := gzip.NewReader(bytes.NewReader(url.Data))
	require.NoError(t, err)
	content, err := io.ReadAll(reader)
	require.NoError(t, err)
	return content
}

func fileAt(t *testing.T, config types.Config, path string) types.File {
	t.Helper()
	for _, file := range config.Storage.Files {
		if file.Path == path {
			return file
		}
	}
	require.Fail(t, "no file "+path)
	return types.File{}
}

func TestRender_FirstServer(t *testing.T) {
	m := testMachine(bootdata.FirstServer)
	m.CAFiles = []bootdata.File{{Path: "/var/lib/rancher/k3s/server/tls/server-ca.key", Permissions: "0600", Content: []byte("key")}}
	data, err := Render(m, "")
	require.NoError(t, err)
	config := parse(t, data)
	k3sConfig := fileAt(t, config, "/etc/rancher/k3s/config.yaml")
	require.Equal(t, "token: \"T\"\n", string(contentOf(t, k3sConfig.Contents)))
	require.Equal(t, 0o600, *k3sConfig.Mode)
	require.True(t, *k3sConfig.Overwrite)
	require.Equal(t, "key", string(contentOf(t, fileAt(t, config, m.CAFiles[0].Path).Contents)))
	require.Len(t, config.Systemd.Units, 1)
	unit := config.Systemd.Units[0]
	require.True(t, *unit.Enabled)
	require.Contains(t, *unit.Contents, "\nExecStart=/bin/sh /etc/cluster-api/k3s/bootstrap.sh server v1.36.3+k3s1 /var/lib/rancher/k3s\n")
	require.Contains(t, *unit.Contents, "\nConditionPathExists=!/etc/cluster-api/k3s/started\n")
}

func TestRender_RefusesWhatOnlyCloudInitCanRender(t *testing.T) {
	const expression = "x {{ ds.meta_data.hostname }}"
	tests := map[string]struct {
		change func(*bootdata.Machine)
		want   string
	}{
		"file": {func(m *bootdata.Machine) {
			m.Files = []bootdata.File{{Path: "/a"}, {Path: "/b", Content: []byte(expression), Rendered: true}}
		}, "files[1].content holds"},
		"command before": {func(m *bootdata.Machine) { m.PreCommands = []string{expression} }, "preK3sCommands[0] holds"},
		"command after":  {func(m *bootdata.Machine) { m.PostCommands = []string{"true", expression} }, "postK3sCommands[1] holds"},
		"field":          {func(m *bootdata.Machine) { m.Config["node-name"] = expression }, "agentConfig.nodeName holds"},
		"setting":        {func(m *bootdata.Machine) { m.Config["pause-image"] = expression }, "extraConfig.pause-image holds"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			m := testMachine(bootdata.Worker)
			tt.change(&m)
			_, err := Render(m, "")
			require.ErrorContains(t, err, tt.want)
		})
	}
	m := testMachine(bootdata.Worker)
	m.Files = []bootdata.File{{Path: "/b", Content: []byte(expression)}}
	_, err := Render(m, "")
	require.NoError(t, err, "content from a Secret is never rendered")
}

func TestRender_RefusesModesThatIgnitionWouldDrop(t *testing.T) {
	m := testMachine(bootdata.Worker)
	m.Files = []bootdata.File{{Path: "/a", Permissions: "4755"}}
	_, err := Render(m, "")
	require.ErrorContains(t, err, "permissions of /a: Ignition knows neither setuid")
}

func TestRender_RefusesFilesThatWouldBeGoneAfterTheBoot(t *testing.T) {
	for _, path := range []string{"/run/a", "/tmp/a", "/dev/shm/a"} {
		m := testMachine(bootdata.Worker)
		m.Files = []bootdata.File{{Path: "/runner"}, {Path: path}}
		_, err := Render(m, "")
		require.ErrorContains(t, err, "files[1].path: Ignition writes "+path+" before the machine has its /")
	}
}

func TestRender_OwnersAreNamesOrNumbers(t *testing.T) {
	m := testMachine(bootdata.Worker)
	m.Files = []bootdata.File{{Path: "/a", Owner: "33:www"}, {Path: "/b", Owner: "core:0"}, {Path: "/c", Owner: ":docker"}, {Path: "/d"}}
	data, err := Render(m, "")
	require.NoError(t, err)
	config := parse(t, data)
	a, b, c, d := fileAt(t, config, "/a"), fileAt(t, config, "/b"), fileAt(t, config, "/c"), fileAt(t, config, "/d")
	require.Equal(t, types.NodeUser{ID: ptr.To(33)}, a.User)
	require.Equal(t, types.NodeGroup{Name: ptr.To("www")}, a.Group)
	require.Equal(t, types.NodeUser{Name: ptr.To("core")}, b.User)
	require.Equal(t, types.NodeGroup{ID: ptr.To(0)}, b.Group)
	require.Equal(t, types.NodeUser{}, c.User)
	require.Equal(t, types.NodeGroup{Name: ptr.To("docker")}, c.Group)
	require.Equal(t, types.NodeUser{}, d.User)
}

func TestRender_MergesTheUsersConfig(t *testing.T) {
	const additional = `{"ignition":{"version":"3.0.0"},"passwd":{"users":[{"name":"core","sshAuthorizedKeys":["ssh-ed25519 A"]}]},
		"systemd":{"units":[{"name":"docker.service","mask":true}]},"storage":{"directories":[{"path":"/d"}]}}`
	data, err := Render(testMachine(bootdata.Worker), additional)
	require.NoError(t, err)
	config := parse(t, data)
	require.Equal(t, "core", config.Passwd.Users[0].Name)
	require.Equal(t, "/d", config.Storage.Directories[0].Path)
	require.Len(t, config.Systemd.Units, 2)
	fileAt(t, config, "/etc/rancher/k3s/config.yaml")
}

// People write configs for Butane; the real library translates them.
func TestRender_MergesAButaneConfig(t *testing.T) {
	for _, variant := range []string{"variant: flatcar\nversion: 1.1.0\n", "variant: fcos\nversion: 1.5.0\n"} {
		data, err := Render(testMachine(bootdata.Worker), variant+`
passwd: {users: [{name: core, ssh_authorized_keys: [ssh-ed25519 A]}]}
storage:
  files: [{path: /etc/motd, contents: {inline: "hello\n"}}]
`)
		require.NoError(t, err)
		config := parse(t, data)
		require.Equal(t, "core", config.Passwd.Users[0].Name)
		require.Equal(t, "hello\n", string(contentOf(t, fileAt(t, config, "/etc/motd").Contents)))
		fileAt(t, config, "/etc/rancher/k3s/config.yaml")
	}
}

func TestRender_RefusesAConfigOfTheUserThatCantBeMerged(t *testing.T) {
	for name, tt := range map[string]struct{ additional, want string }{
		"not JSON":        {"variant: flatcar", "ignition.additionalConfig isn't a config that Ignition takes, in JSON"},
		"Butane, too new": {"variant: fcos\nversion: 1.6.0\n", "nor a Butane config in YAML, as of fcos 1.5.0"},
		"Butane, a typo":  {"variant: fcos\nversion: 1.5.0\nstorage: {file: [{path: /hunter2}]}\n", "isn't a config that Ignition takes"},
		"Butane, a file of the operator's machine": {
			"variant: fcos\nversion: 1.5.0\nstorage: {files: [{path: /a, contents: {local: etc/passwd}}]}\n", "$.storage.files.0.contents.local",
		},
		"too new":      {`{"ignition":{"version":"3.9.0"}}`, "of a version from 3.0.0 to 3.4.0"},
		"invalid":      {`{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"relative"}]}}`, "$.storage.files.0.path"},
		"a typo":       {`{"ignition":{"version":"3.4.0"},"storage":{"file":[{"path":"/hunter2"}]}}`, "nused key file at $.storage.file"},
		"taken file":   {`{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/etc/rancher/k3s/config.yaml"}]}}`, "storage.files[0].path: /etc/rancher/k3s/config.yaml is written already"},
		"taken folder": {`{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/etc/cluster-api/k3s/preK3sCommands/999"}]}}`, "is in a folder of the operator"},
		"taken unit":   {`{"ignition":{"version":"3.4.0"},"systemd":{"units":[{"name":"k3s-bootstrap.service"}]}}`, "is the operator's"},
		"no directory": {`{"ignition":{"version":"3.4.0"},"storage":{"links":[{"path":"/etc/rancher","target":"/x"}]}}`, "format ignition: the result would be refused"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Render(testMachine(bootdata.Worker), tt.additional)
			require.ErrorContains(t, err, tt.want)
			require.NotContains(t, err.Error(), "hunter2")
		})
	}
}

// The unit's command does on the machine what cloud-init's runcmd does.
func TestRender_TheUnitMakesANode(t *testing.T) {
	c := computer.New(t)
	m := testMachine(bootdata.FirstServer)
	m.PreCommands = []string{"echo pre >>/root/order"}
	data, err := Render(m, "")
	require.NoError(t, err)
	config := parse(t, data)
	for _, file := range config.Storage.Files {
		c.Write(file.Path, string(contentOf(t, file.Contents)), 0o600)
	}
	log, err := c.Run("sh", "-c", commandOf(*config.Systemd.Units[0].Contents))
	require.NoError(t, err, log)
	require.True(t, c.Exists(computer.Sentinel), log)
	require.Equal(t, "pre\n", c.Read("/root/order"))
	require.Equal(t, "v1.36.3+k3s1 true server\n", c.Read("/root/installed"))
	require.Equal(t, "server: \"https://cp:6443\"\n", c.Read("/etc/rancher/k3s/config.yaml.d/90-join.yaml"))
	require.True(t, c.Exists("/etc/cluster-api/k3s/started"), "the unit's condition holds no more")
}

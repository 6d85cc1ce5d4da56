package cloudconfig

import (
	"encoding/base64"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/ptr"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
	"github.com/capk3s/capk3s/bootstrap/internal/bootdata"
	"github.com/capk3s/capk3s/test/testenv/computer"
)

func TestBoot_SetsTheSentinelOnceK3sIsUp(t *testing.T) {
	c := computer.New(t)
	c.Command("systemctl", `
echo "$*" >>/root/systemctl
test ! -e `+computer.Sentinel+` || echo "too early" >>/root/systemctl
test "$1" != is-active || test "$(grep -c is-active /root/systemctl)" -ge 3`)
	m := testMachine(bootdata.FirstServer)
	m.PreCommands = []string{"echo pre >>/root/order; export GREETING=hello; cd /root", "sleep 1; true"}
	m.PostCommands = []string{"cat systemctl >>/root/order", "echo \"$GREETING\" >>/root/order; test ! -e " + computer.Sentinel}
	log, err := c.Boot(render(t, m))
	require.NoError(t, err, log)
	require.Equal(t, "success\n", c.Read(computer.Sentinel), log)
	require.Equal(t, "v1.36.3+k3s1 true server\n", c.Read("/root/installed"))
	require.Equal(t, "pre\nstart --no-block k3s\n"+strings.Repeat("is-active --quiet k3s\n", 3)+"hello\n", c.Read("/root/order"))
	require.Equal(t, "server: \"https://cp:6443\"\n", c.Read("/etc/rancher/k3s/config.yaml.d/90-join.yaml"))
	require.Contains(t, log, "k3s-bootstrap: this machine is a K3s server")
}

func TestBoot_WorkerStartsTheAgent(t *testing.T) {
	c := computer.New(t)
	log, err := c.Boot(render(t, testMachine(bootdata.Worker)))
	require.NoError(t, err, log)
	require.Equal(t, "v1.36.3+k3s1 true agent\n", c.Read("/root/installed"))
	require.Equal(t, "start --no-block k3s-agent\nis-active --quiet k3s-agent\n", c.Read("/root/systemctl"))
	require.False(t, c.Exists("/etc/rancher/k3s/config.yaml.d"))
	require.Equal(t, "success\n", c.Read(computer.Sentinel), log)
}

// Nothing is downloaded: the script comes with files, the binary and the images are in the machine's image.
func TestBoot_AirGappedWithAScriptThatFilesBring(t *testing.T) {
	c, m := computer.New(t), testMachine(bootdata.Worker)
	packed, err := bootdata.Compress([]byte("echo \"$INSTALL_K3S_SKIP_DOWNLOAD $*\" >/root/installed\n"))
	require.NoError(t, err)
	script, err := bootdata.FromAPI(&bootstrapv1.File{
		Path: "/opt/install.sh", Content: base64.StdEncoding.EncodeToString(packed), Encoding: bootstrapv1.GzipBase64, Permissions: "0500",
	}, nil)
	require.NoError(t, err)
	m.Files, m.Install.AirGapped = []bootdata.File{script}, ptr.To(true)
	c.Hide("curl")
	c.Hide("wget")
	c.Command("k3s", "echo 'k3s version "+m.Version+" (abc)'")
	log, err := c.Boot(render(t, m))
	require.NoError(t, err, log)
	require.Equal(t, "true agent\n", c.Read("/root/installed"))
	require.True(t, c.Exists(computer.Sentinel), log)
}

// What is there keeps its mode: appending to it shows nobody its content.
func TestBoot_AppendsWithoutChangingWhoMayRead(t *testing.T) {
	c, m := computer.New(t), testMachine(bootdata.Worker)
	c.Write("/etc/closed", "secret\n", 0o640)
	m.Files = []bootdata.File{
		{Path: "/etc/closed", Content: []byte("more of {{ v1.local_hostname }}\n"), Append: true, Rendered: true},
		{Path: "/opt/new/file", Content: []byte("x"), Append: true},
	}
	log, err := c.Boot(render(t, m))
	require.NoError(t, err, log)
	require.Equal(t, "secret\nmore of "+computer.Hostname+"\n", c.Read("/etc/closed"))
	require.Equal(t, "x", c.Read("/opt/new/file"))
	info, err := os.Stat(c.Path("/etc/closed"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o640), info.Mode().Perm())
}

// cloud-init drops a document that it can't render, and calls that a success.
func TestBoot_SaysWhichInstanceDataAreMissing(t *testing.T) {
	expressions := []string{
		"{{ ds.meta_data.no_such_thing }}", "{{ ds.no_such_group.no_such_thing }}", "{{ v1.no_such_thing.split('.')[0] }}",
		"{{ ds.meta_data.no_such_thing[:8] }}", "{{ ds.no.such.no_such_thing | lower }}",
	}
	c, m := computer.New(t), testMachine(bootdata.Worker)
	m.Config["node-label"] = expressions
	log, _ := c.Boot(render(t, m))
	_, failure, _ := strings.Cut(log, "k3s-bootstrap: FAILED: ")
	require.Contains(t, failure, "has an expression over instance data that this machine doesn't have: CI_MISSING_JINJA_VAR/no_such_thing\n")
	written := strings.ToLower(c.Read(bootdata.ConfigPath))
	require.Equal(t, len(expressions), strings.Count(written, "ci_missing_jinja_var/no_such_thing"), written)
	require.False(t, c.Exists(computer.Sentinel))
	require.False(t, c.Exists("/root/installed"))
}

func TestBoot_CloudInitSeesTheFailure(t *testing.T) {
	c, m := computer.New(t), testMachine(bootdata.FirstServer)
	m.PreCommands = []string{"exit 0"}
	log, _ := c.Boot(render(t, m))
	require.Contains(t, log, "FAILED: ended early, with status 0")
	require.Contains(t, log+c.Read("/var/log/cloud-init.log"), "Failed to run module scripts-user")
	require.False(t, c.Exists(computer.Sentinel))
}

func render(t *testing.T, m bootdata.Machine) []byte {
	t.Helper()
	data, err := Render(m)
	require.NoError(t, err)
	return data
}

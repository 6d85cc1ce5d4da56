package cloudconfig

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// computer is a sandbox in which the real cloud-init runs bootstrap data. The commands that reach out of a machine or
// take long are scripts of the test.
type computer struct {
	t   *testing.T
	dir string

	// hidden are programs that the computer doesn't have.
	hidden []string
}

// What instance data the computers have.
const (
	testInstanceID = "i-0123456789"
	testHostname   = "node-1"
	testOddValue   = `it's "odd" \ & <b> $(reboot)`
)

const cloudCfg = `datasource_list: [NoCloud]
datasource: {NoCloud: {fs_label: null}}
cloud_init_modules: [write-files]
cloud_config_modules: [runcmd]
cloud_final_modules: [scripts-user]
system_info: {distro: debian, paths: {cloud_dir: /var/lib/cloud, templates_dir: /etc/cloud/templates}}
output: {all: '>> /var/log/cloud-init-output.log'}
`

// installScript is what https://get.k3s.io answers.
const installScript = `echo "$INSTALL_K3S_VERSION $INSTALL_K3S_SKIP_START $*" >>/root/installed`

func newComputer(t *testing.T) *computer {
	t.Helper()
	for _, program := range []string{"cloud-init", "bwrap"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s isn't installed: apt-get install cloud-init bubblewrap", program)
		}
	}
	c := &computer{t: t, dir: t.TempDir()}
	c.write("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\ndaemon:x:1:1::/:/bin/false\n", 0o644)
	c.write("/etc/group", "root:x:0:\ndaemon:x:1:\n", 0o644)
	c.write("/etc/cloud/cloud.cfg", cloudCfg, 0o644)
	c.write("/var/lib/cloud/seed/nocloud/meta-data", fmt.Sprintf("instance-id: %s\nlocal-hostname: %s\nodd: %s\n",
		testInstanceID, testHostname, strconv.Quote(testOddValue)), 0o600)
	for _, dir := range []string{"/run", "/root", "/var/log", "/etc/cloud/cloud.cfg.d"} {
		require.NoError(t, os.MkdirAll(c.path(dir), 0o755))
	}
	for _, name := range []string{"/etc/os-release", "/etc/ld.so.cache", "/etc/alternatives"} {
		if _, err := os.Stat(name); err == nil {
			require.NoError(t, exec.Command("cp", "-rL", name, c.path(name)).Run())
		}
	}
	c.command("curl", "cat <<'END'\n"+installScript+"\nEND")
	c.command("systemctl", `echo "$*" >>/root/systemctl`)
	c.command("journalctl", `echo "the log of $5"`)
	c.command("sleep", "")
	return c
}

// command puts a shell script in the place of a program.
func (c *computer) command(name, script string) {
	c.t.Helper()
	c.write("/usr/local/bin/"+name, "#!/bin/sh\n"+script+"\n", 0o755)
}

func (c *computer) path(inside string) string { return filepath.Join(c.dir, inside) }

func (c *computer) write(inside, content string, mode os.FileMode) {
	c.t.Helper()
	require.NoError(c.t, os.MkdirAll(filepath.Dir(c.path(inside)), 0o755))
	require.NoError(c.t, os.WriteFile(c.path(inside), []byte(content), mode))
}

func (c *computer) read(inside string) string {
	c.t.Helper()
	content, err := os.ReadFile(c.path(inside))
	require.NoError(c.t, err)
	return string(content)
}

func (c *computer) exists(inside string) bool {
	_, err := os.Lstat(c.path(inside))
	return err == nil
}

// boot runs cloud-init's four stages. It returns what they printed, and the error of the last, in which scripts run.
func (c *computer) boot(data []byte) (string, error) {
	c.t.Helper()
	c.write("/var/lib/cloud/seed/nocloud/user-data", string(data), 0o600)
	out, err := c.run("sh", "-c",
		"cloud-init init --local; cloud-init init; cloud-init modules --mode=config; cloud-init modules --mode=final")
	log, _ := os.ReadFile(c.path("/var/log/cloud-init-output.log"))
	return out + string(log), err
}

// bootstrap does what cloud-init does with a machine's data, but faster.
func (c *computer) bootstrap(m Machine) (string, error) {
	c.t.Helper()
	data := parse(c.t, m)
	for _, file := range data.WriteFiles {
		c.write(file.Path, data.content(c.t, file.Path), 0o600)
	}
	return c.run(data.RunCmd[0]...)
}

// run runs a program in the sandbox and returns what it printed.
func (c *computer) run(command ...string) (string, error) {
	args := []string{
		"--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--tmpfs", "/sys",
		"--unshare-net", "--unshare-uts", "--unshare-ipc", "--unshare-pid", "--hostname", "machine", "--die-with-parent",
	}
	if os.Getuid() != 0 {
		args = append(args, "--unshare-user", "--uid", "0", "--gid", "0")
	}
	for _, dir := range []string{"/etc", "/var", "/run", "/root", "/usr/local/bin"} {
		args = append(args, "--bind", c.path(dir), dir)
	}
	for _, program := range c.hidden {
		args = append(args, "--ro-bind-try", os.DevNull, program)
	}
	args = append(args, "env", "-i", "PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "LC_ALL=C.UTF-8")
	out, err := exec.Command("bwrap", append(args, command...)...).CombinedOutput()
	return string(out), err
}

const sentinel = "/run/cluster-api/bootstrap-success.complete"

func TestBoot_SetsTheSentinelOnceK3sIsUp(t *testing.T) {
	c := newComputer(t)
	c.command("systemctl", `
echo "$*" >>/root/systemctl
test ! -e `+sentinel+` || echo "too early" >>/root/systemctl
test "$1" != is-active || test "$(grep -c is-active /root/systemctl)" -ge 3`)
	m := testMachine(FirstServer)
	m.PreCommands = []string{"echo pre >>/root/order; export GREETING=hello; cd /root", "sleep 1; true"}
	m.PostCommands = []string{"cat systemctl >>/root/order", "echo \"$GREETING\" >>/root/order; test ! -e " + sentinel}
	log, err := c.boot(render(t, m))
	require.NoError(t, err, log)
	require.Equal(t, "success\n", c.read(sentinel), log)
	require.Equal(t, "v1.36.3+k3s1 true server\n", c.read("/root/installed"))
	require.Equal(t, "pre\nstart --no-block k3s\n"+strings.Repeat("is-active --quiet k3s\n", 3)+"hello\n", c.read("/root/order"))
	require.Equal(t, "server: \"https://cp:6443\"\n", c.read(joinedPath))
	require.Contains(t, log, "k3s-bootstrap: this machine is a K3s server")
}

func TestBoot_WorkerStartsTheAgent(t *testing.T) {
	c := newComputer(t)
	log, err := c.boot(render(t, testMachine(Worker)))
	require.NoError(t, err, log)
	require.Equal(t, "v1.36.3+k3s1 true agent\n", c.read("/root/installed"))
	require.Equal(t, "start --no-block k3s-agent\nis-active --quiet k3s-agent\n", c.read("/root/systemctl"))
	require.False(t, c.exists(joinedPath))
	require.Equal(t, "success\n", c.read(sentinel), log)
}

func TestBoot_CloudInitSeesTheFailure(t *testing.T) {
	c, m := newComputer(t), testMachine(FirstServer)
	m.PreCommands = []string{"exit 0"}
	log, _ := c.boot(render(t, m))
	require.Contains(t, log, "FAILED: ended early, with status 0")
	require.Contains(t, log+c.read("/var/log/cloud-init.log"), "Failed to run module scripts-user")
	require.False(t, c.exists(sentinel))
}

// Whatever fails: no sentinel, a status that isn't zero, and a line in the log that says what it was.
func TestScript_FailureIsVisible(t *testing.T) {
	tests := map[string]struct {
		prepare func(*computer, *Machine)
		want    string
		tries   int
	}{
		"network": {
			func(c *computer, _ *Machine) { c.command("curl", "echo try >>/root/tries; exit 6") },
			"FAILED: K3s v1.36.3+k3s1 couldn't be installed in 10 attempts", 10,
		},
		"empty install script": {
			func(c *computer, _ *Machine) { c.command("curl", "echo try >>/root/tries") },
			"FAILED: K3s v1.36.3+k3s1 couldn't be installed in 10 attempts", 10,
		},
		"no such version": {
			func(c *computer, _ *Machine) { c.command("curl", "echo try >>/root/tries; echo exit 1") },
			"FAILED: K3s v1.36.3+k3s1 couldn't be installed in 10 attempts", 10,
		},
		"unit can't be started": {
			func(c *computer, _ *Machine) { c.command("systemctl", `test "$1" != start`) },
			"FAILED: k3s couldn't be started", 0,
		},
		"K3s never comes up": {
			func(c *computer, _ *Machine) { c.command("systemctl", `test "$1" != is-active`) },
			"the log of k3s\nk3s-bootstrap: FAILED: k3s didn't come up within 15 minutes", 0,
		},
		"command before": {
			func(_ *computer, m *Machine) { m.PreCommands = []string{"true", "(exit 7)", "touch /root/reached"} },
			"FAILED: preK3sCommands/001 ended with status 7", 0,
		},
		"command after": {
			func(_ *computer, m *Machine) { m.PostCommands = []string{"false", "touch /root/reached"} },
			"FAILED: postK3sCommands/000 ended with status 1", 0,
		},
		"command that exits": {
			func(_ *computer, m *Machine) { m.PreCommands = []string{"exit 0"} },
			"FAILED: ended early, with status 0", 0,
		},
		"command that isn't shell": {
			func(_ *computer, m *Machine) { m.PreCommands = []string{"if ("} },
			"FAILED:", 0,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c, m := newComputer(t), testMachine(FirstServer)
			tt.prepare(c, &m)
			log, err := c.bootstrap(m)
			require.Error(t, err)
			require.Contains(t, log, tt.want)
			require.False(t, c.exists(sentinel))
			require.False(t, c.exists("/root/reached"), "later commands don't run")
			if tt.tries > 0 {
				require.Equal(t, tt.tries, strings.Count(c.read("/root/tries"), "\n"))
			}
		})
	}
}

// OpenRC says that a service runs as soon as its process does; whether K3s is up is asked of its own API.
func TestScript_OpenRC(t *testing.T) {
	for role, want := range map[Role]struct{ service, kubeconfig string }{
		JoiningServer: {"k3s", "/var/lib/rancher/k3s/server/cred/admin.kubeconfig"},
		Worker:        {"k3s-agent", "/var/lib/rancher/k3s/agent/kubelet.kubeconfig"},
	} {
		t.Run(string(role), func(t *testing.T) {
			c := newComputer(t)
			require.NoError(t, os.Remove(c.path("/usr/local/bin/systemctl")))
			for _, dir := range []string{"/usr/bin/", "/bin/"} {
				if _, err := os.Stat(dir + "systemctl"); err == nil {
					c.hidden = append(c.hidden, dir+"systemctl")
				}
			}
			c.command("rc-service", `echo "rc-service $*" >>/root/calls`)
			c.command("k3s", `echo "k3s $*" >>/root/calls; test "$(grep -c k3s /root/calls)" -ge 4`)
			log, err := c.bootstrap(testMachine(role))
			require.NoError(t, err, log)
			probe := "k3s kubectl --kubeconfig " + want.kubeconfig + " get --raw /readyz\n"
			require.Equal(t, "rc-service "+want.service+" start\n"+strings.Repeat(probe, 3), c.read("/root/calls"))
			require.True(t, c.exists(sentinel))
		})
	}
}

func render(t *testing.T, m Machine) []byte {
	t.Helper()
	data, err := Render(m)
	require.NoError(t, err)
	return data
}

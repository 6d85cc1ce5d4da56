// Package computer is a machine for tests of bootstrap data: a sandbox in which the real cloud-init runs.
package computer

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// Computer is a sandbox in which the real cloud-init runs bootstrap data. The commands that reach out of a machine or
// take long are scripts of the test.
type Computer struct {
	t   *testing.T
	dir string

	// hidden are programs that the computer doesn't have.
	hidden []string
}

// What the instance data of all computers say.
const (
	// InstanceID is that of meta_data.instance_id.
	InstanceID = "i-0123456789"

	// Hostname is that of meta_data.local_hostname.
	Hostname = "node-1"

	// OddValue is that of meta_data.odd.
	OddValue = `it's "odd" \ & <b> $(reboot)`
)

// Sentinel tells Cluster API that the machine is bootstrapped.
const Sentinel = "/run/cluster-api/bootstrap-success.complete"

// writable are the folders that a computer has for itself; it shares all others with this machine.
var writable = []string{"/etc", "/var", "/run", "/root", "/opt", "/usr/local/bin"}

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

// New returns a computer that is about to boot for the first time. It skips the test where the programs are missing.
func New(t *testing.T) *Computer {
	t.Helper()
	for _, program := range []string{"cloud-init", "bwrap"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s isn't installed: apt-get install cloud-init bubblewrap", program)
		}
	}
	c := &Computer{t: t, dir: t.TempDir()}
	c.Write("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\ndaemon:x:1:1::/:/bin/false\n", 0o644)
	c.Write("/etc/group", "root:x:0:\ndaemon:x:1:\n", 0o644)
	c.Write("/etc/cloud/cloud.cfg", cloudCfg, 0o644)
	c.Write("/var/lib/cloud/seed/nocloud/meta-data", fmt.Sprintf("instance-id: %s\nlocal-hostname: %s\nodd: %s\n",
		InstanceID, Hostname, strconv.Quote(OddValue)), 0o600)
	for _, dir := range append(writable, "/var/log", "/etc/cloud/cloud.cfg.d") {
		require.NoError(t, os.MkdirAll(c.Path(dir), 0o755))
	}
	for _, name := range []string{"/etc/os-release", "/etc/ld.so.cache", "/etc/alternatives"} {
		if _, err := os.Stat(name); err == nil {
			require.NoError(t, exec.Command("cp", "-rL", name, c.Path(name)).Run())
		}
	}
	c.Command("curl", "cat <<'END'\n"+installScript+"\nEND")
	c.Command("systemctl", `echo "$*" >>/root/systemctl`)
	c.Command("journalctl", `echo "the log of $5"`)
	c.Command("sleep", "")
	return c
}

// Command puts a shell script in the place of a program.
func (c *Computer) Command(name, script string) {
	c.t.Helper()
	c.Write("/usr/local/bin/"+name, "#!/bin/sh\n"+script+"\n", 0o755)
}

// Path returns where the test finds a file of the computer.
func (c *Computer) Path(inside string) string { return filepath.Join(c.dir, inside) }

// Write makes a file, with the folders above it.
func (c *Computer) Write(inside, content string, mode os.FileMode) {
	c.t.Helper()
	require.NoError(c.t, os.MkdirAll(filepath.Dir(c.Path(inside)), 0o755))
	require.NoError(c.t, os.WriteFile(c.Path(inside), []byte(content), mode))
}

// Read returns the content of a file that must exist.
func (c *Computer) Read(inside string) string {
	c.t.Helper()
	content, err := os.ReadFile(c.Path(inside))
	require.NoError(c.t, err)
	return string(content)
}

// Exists says whether there is such a file.
func (c *Computer) Exists(inside string) bool {
	_, err := os.Lstat(c.Path(inside))
	return err == nil
}

// Boot runs cloud-init's four stages. It returns what they printed, and the error of the last, in which scripts run.
func (c *Computer) Boot(data []byte) (string, error) {
	c.t.Helper()
	c.Write("/var/lib/cloud/seed/nocloud/user-data", string(data), 0o600)
	out, err := c.Run("sh", "-c",
		"cloud-init init --local; cloud-init init; cloud-init modules --mode=config; cloud-init modules --mode=final")
	log, _ := os.ReadFile(c.Path("/var/log/cloud-init-output.log"))
	return out + string(log), err
}

// Run runs a program in the sandbox and returns what it printed.
func (c *Computer) Run(command ...string) (string, error) {
	args := []string{
		"--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--tmpfs", "/sys",
		"--unshare-net", "--unshare-uts", "--unshare-ipc", "--unshare-pid", "--hostname", "machine", "--die-with-parent",
	}
	if os.Getuid() != 0 {
		args = append(args, "--unshare-user", "--uid", "0", "--gid", "0")
	}
	for _, dir := range writable {
		args = append(args, "--bind", c.Path(dir), dir)
	}
	for _, program := range c.hidden {
		args = append(args, "--ro-bind-try", os.DevNull, program)
	}
	args = append(args, "env", "-i", "PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "LC_ALL=C.UTF-8")
	out, err := exec.Command("bwrap", append(args, command...)...).CombinedOutput()
	return string(out), err
}

// Unveil lets a program of this machine be used, in place of the script of a test. It skips the test where there is none.
func (c *Computer) Unveil(program string) {
	c.t.Helper()
	require.NoError(c.t, os.RemoveAll(c.Path("/usr/local/bin/"+program)))
	for _, dir := range []string{"/usr/bin/", "/bin/"} {
		if _, err := os.Stat(dir + program); err == nil {
			return
		}
	}
	c.t.Skipf("%s isn't installed: apt-get install %s", program, program)
}

// Hide takes a program away, wherever the computer or this machine has it.
func (c *Computer) Hide(program string) {
	c.t.Helper()
	require.NoError(c.t, os.RemoveAll(c.Path("/usr/local/bin/"+program)))
	for _, dir := range []string{"/usr/bin/", "/bin/"} {
		if _, err := os.Stat(dir + program); err == nil {
			c.hidden = append(c.hidden, dir+program)
		}
	}
}

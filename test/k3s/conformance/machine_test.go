//go:build conformance

package conformance

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v2"
)

// machine is a host with its own network, hostname and disk.
type machine struct {
	name string
	ip   string
	dir  string
	// owner is the test that the machine's processes live as long as.
	owner *testing.T
}

// inside is the shell script that gives a process the machine's hostname and
// disk. The process keeps its pid.
const inside = `set -e
hostname "$1"
mount --bind "$2/etc" /etc
mount --bind "$2/var" /var
shift 2
exec "$@"`

// newMachine makes a machine that lives as long as the test. Its address is
// 10.99.0.<number>, its name <prefix><number>.
func newMachine(t *testing.T, prefix string, number int) *machine {
	t.Helper()
	m := &machine{
		name:  fmt.Sprintf("%s%d", prefix, number),
		ip:    fmt.Sprintf("10.99.0.%d", number),
		dir:   t.TempDir(),
		owner: t,
	}
	link := fmt.Sprintf("v%d", number)
	for _, command := range [][]string{
		{"ip", "netns", "add", m.name},
		{"ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", m.name},
		{"ip", "link", "set", link, "master", "br0"},
		{"ip", "link", "set", link, "up"},
		{"ip", "-n", m.name, "link", "set", "lo", "up"},
		{"ip", "-n", m.name, "address", "add", m.ip + "/24", "dev", "eth0"},
		{"ip", "-n", m.name, "link", "set", "eth0", "up"},
		{"ip", "-n", m.name, "route", "add", "default", "via", gateway},
	} {
		require.NoError(t, runCommand(command...))
	}
	t.Cleanup(func() {
		require.NoError(t, runCommand("ip", "link", "delete", link))
		require.NoError(t, runCommand("ip", "netns", "delete", m.name))
	})
	m.reset(t)
	return m
}

// reset gives the machine an empty disk.
func (m *machine) reset(t *testing.T) {
	t.Helper()
	for _, dir := range []string{"etc", "var"} {
		require.NoError(t, os.RemoveAll(filepath.Join(m.dir, dir)))
	}
	require.NoError(t, os.MkdirAll(filepath.Join(m.dir, "var", "lib"), 0o755))
	require.NoError(t, os.MkdirAll(filepath.Join(m.dir, "var", "log"), 0o755))
	// Unreadable files aren't needed.
	_ = exec.Command("cp", "-a", "/etc", filepath.Join(m.dir, "etc")).Run()
	require.NoError(t, os.MkdirAll(filepath.Join(m.dir, "etc", "rancher", "k3s"), 0o755))
}

// path is where a file of the machine is seen from outside.
func (m *machine) path(parts ...string) string {
	return filepath.Join(append([]string{m.dir}, parts...)...)
}

// server is the path of a file below /var/lib/rancher/k3s/server.
func (m *machine) server(parts ...string) string {
	return m.path(append([]string{"var", "lib", "rancher", "k3s", "server"}, parts...)...)
}

// readFile fails if the file is not there.
func readFile(path string) (string, error) {
	raw, err := os.ReadFile(path)
	return string(raw), err
}

func (m *machine) read(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(raw)
}

// settings are keys of config.yaml.
type settings map[string]any

// serverDefaults keep a real K3s to what can run without a kubelet.
var serverDefaults = settings{
	"disable-agent":            true,
	"disable":                  []string{"coredns", "servicelb", "traefik", "local-storage", "metrics-server"},
	"disable-cloud-controller": true,
	"disable-helm-controller":  true,
	"disable-network-policy":   true,
	"flannel-backend":          "none",
}

// configure writes config.yaml: the defaults, and what the test adds.
func (m *machine) configure(t *testing.T, own settings) {
	t.Helper()
	merged := settings{"node-ip": m.ip}
	for _, part := range []settings{serverDefaults, own} {
		for key, value := range part {
			merged[key] = value
		}
	}
	m.writeConfig(t, merged)
}

func (m *machine) writeConfig(t *testing.T, content settings) {
	t.Helper()
	raw, err := yaml.Marshal(content)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(m.path("etc", "rancher", "k3s", "config.yaml"), raw, 0o600))
}

// process is a running K3s.
type process struct {
	cmd    *exec.Cmd
	log    string
	exited chan struct{}
}

// start runs K3s with the machine's config.yaml; it ends with the machine.
func (m *machine) start(t *testing.T, args ...string) *process {
	t.Helper()
	return m.startWithEnv(t, nil, args...)
}

func (m *machine) startWithEnv(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	logFile := m.path(fmt.Sprintf("k3s-%d.log", time.Now().UnixNano()))
	output, err := os.Create(logFile)
	require.NoError(t, err)
	defer func() { _ = output.Close() }()
	command := append([]string{"netns", "exec", m.name, "unshare", "--mount", "--uts", "sh", "-c", inside, "sh", m.name, m.dir, binary}, args...)
	cmd := exec.Command("ip", command...)
	cmd.Stdout, cmd.Stderr = output, output
	cmd.Env = append(os.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, cmd.Start())
	p := &process{cmd: cmd, log: logFile, exited: make(chan struct{})}
	go func() {
		_ = cmd.Wait()
		close(p.exited)
	}()
	m.owner.Cleanup(func() {
		p.kill()
		if m.owner.Failed() {
			m.owner.Logf("log of %s on %s:\n%s", strings.Join(args, " "), m.name, tail(p.output(), 60))
		}
	})
	return p
}

func (p *process) output() string {
	raw, _ := os.ReadFile(p.log)
	return string(raw)
}

// message is the output with the quoting of log lines undone.
func (p *process) message() string { return strings.ReplaceAll(p.output(), `\"`, `"`) }

func (p *process) running() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// stop asks the process to end, and waits for it.
func (p *process) stop(t *testing.T) {
	t.Helper()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	p.waitExit(t, time.Minute)
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.exited
}

// waitExit returns the exit code of a process that ends by itself.
func (p *process) waitExit(t *testing.T, atMost time.Duration) int {
	t.Helper()
	select {
	case <-p.exited:
	case <-time.After(atMost):
		require.Fail(t, "K3s still runs", "after %s:\n%s", atMost, tail(p.output(), 30))
	}
	return p.cmd.ProcessState.ExitCode()
}

// waitLog waits for a text in the log.
func (p *process) waitLog(t *testing.T, text string, atMost time.Duration) {
	t.Helper()
	eventually(t, atMost, func() error {
		if strings.Contains(p.message(), text) {
			return nil
		}
		return fmt.Errorf("no %q in the log of %s", text, p.cmd.Args[3])
	})
}

// waitUp waits for a server that is ready.
func (p *process) waitUp(t *testing.T) {
	t.Helper()
	eventually(t, 2*time.Minute, func() error {
		if strings.Contains(p.output(), "k3s is up and running") {
			return nil
		}
		if !p.running() {
			return stop{fmt.Errorf("K3s ended:\n%s", tail(p.output(), 30))}
		}
		return fmt.Errorf("not up yet")
	})
}

func tail(text string, lines int) string {
	all := bytes.Split([]byte(strings.TrimRight(text, "\n")), []byte("\n"))
	if len(all) > lines {
		all = all[len(all)-lines:]
	}
	return string(bytes.Join(all, []byte("\n")))
}

// stop is an error that no waiting will cure.
type stop struct{ error }

// eventually calls until there is no error.
func eventually(t *testing.T, atMost time.Duration, check func() error) {
	t.Helper()
	deadline := time.Now().Add(atMost)
	for {
		err := check()
		if err == nil {
			return
		}
		if _, final := err.(stop); final || time.Now().After(deadline) {
			require.NoError(t, err, "after at most %s", atMost)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

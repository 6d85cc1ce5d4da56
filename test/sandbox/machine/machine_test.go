package machine_test

import (
	"context"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/capk3s/capk3s/test/sandbox/machine"
	"github.com/capk3s/capk3s/test/world"
)

var here *world.World

// patience is how long a machine may take to do a thing on a computer that has much else to do.
const patience = 5 * time.Minute

func TestMain(m *testing.M) {
	here = world.Enter()
	os.Exit(m.Run())
}

// userData is what a bootstrap provider could write; the placeholder for K3s is
// an endless sleep that says it is ready.
const userData = `## template: jinja
#cloud-config
write_files:
- path: /etc/rancher/k3s/config.yaml
  owner: root:root
  permissions: "0600"
  content: |
    token: abc
    node-name: {{ ds.meta_data.instance_id }}
    kubelet-arg: ["provider-id={{ ds.meta_data.provider_id }}"]
- path: /etc/packed
  encoding: gz+b64
  content: H4sIAAAAAAACA8tIzcnJBwCGphA2BQAAAA==
runcmd:
- ["sh", "-c", "curl -sfL https://get.k3s.io | INSTALL_K3S_VERSION=v1.36.3+k3s1 INSTALL_K3S_SKIP_START=true sh -s - server"]
- systemctl start --no-block k3s
- "until systemctl -q is-active k3s; do sleep 0.1; done"
- mkdir -p /run/cluster-api && echo success > /run/cluster-api/bootstrap-success.complete
`

// placeholder is K3s for these tests: it tells what it was started with.
const placeholder = `#!/bin/sh
echo "$0 $*" K3S_VERSION=$K3S_VERSION KUBE=$K3S_KUBE_APISERVER
python3 -c 'import os,socket; socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"READY=1", os.environ["NOTIFY_SOCKET"])'
exec python3 -m http.server 6443
`

// newHost has the machine's own program and a placeholder for K3s.
func newHost(t *testing.T) *machine.Host {
	t.Helper()
	host, err := here.Host()
	require.NoError(t, err)
	program, err := world.Program("sandbox-machine")
	require.NoError(t, err)
	host.BinDir, host.AssetsDir, host.K3sBinary = t.TempDir(), "", ""
	data, err := os.ReadFile(program)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(host.BinDir, "sandbox-machine"), data, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(host.BinDir, "k3s-emulator"), []byte(placeholder), 0o755))
	return host
}

// boot starts a machine and waits until its bootstrap data is done.
func boot(ctx context.Context, t *testing.T, host *machine.Host, name, userData string) *machine.Machine {
	t.Helper()
	m, err := host.Create(ctx, machine.Config{
		Namespace: "ns", Name: name, ProviderID: "sandbox:///ns/" + name, UserData: []byte(userData),
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			console, _ := os.ReadFile(m.ConsoleLog())
			t.Logf("console of %s:\n%s", m, console)
		}
		require.NoError(t, m.Delete(context.Background()))
	})
	require.NoError(t, m.Start(ctx))
	require.Eventually(t, func() bool {
		state, err := m.Boot()
		return err == nil && state.Done
	}, patience, 50*time.Millisecond, "the bootstrap data isn't done")
	return m
}

func TestHost_ProgramsThatMakeMachinesAtTheSameTimeShareNoAddress(t *testing.T) {
	const programs = 8
	machines := make([]*machine.Machine, programs)
	var all errgroup.Group
	for i := range programs {
		host := newHost(t) // each program of the world has a Host of its own
		all.Go(func() (err error) {
			machines[i], err = host.Create(t.Context(), machine.Config{Namespace: "ns", Name: "at-once-" + strconv.Itoa(i)})
			return err
		})
	}
	require.NoError(t, all.Wait())
	addresses := map[netip.Addr]string{}
	for _, m := range machines {
		require.Empty(t, addresses[m.Address()], "has the address of %s", m)
		addresses[m.Address()] = m.Name()
		require.NoError(t, m.Delete(t.Context()))
	}
}

func reachable(m *machine.Machine) bool {
	conn, err := net.DialTimeout("tcp", net.JoinHostPort(m.Address().String(), "6443"), time.Second)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

func eventually(t *testing.T, condition func() bool) {
	t.Helper()
	require.Eventually(t, condition, patience, 50*time.Millisecond)
}

func TestMachine_RunsBootstrapDataWithRealCloudInit(t *testing.T) {
	m := boot(t.Context(), t, newHost(t), "first", userData)

	config, err := m.ReadFile("/etc/rancher/k3s/config.yaml")
	require.NoError(t, err)
	require.Equal(t, "token: abc\nnode-name: first\nkubelet-arg: [\"provider-id=sandbox:///ns/first\"]\n", string(config))
	info, err := os.Stat(m.Path("/etc/rancher/k3s/config.yaml"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())
	packed, err := m.ReadFile("/etc/packed")
	require.NoError(t, err)
	require.Equal(t, "hello", string(packed))

	log, err := m.ReadFile("/var/log/k3s.log")
	require.NoError(t, err)
	require.Contains(t, string(log), "/usr/local/bin/k3s server K3S_VERSION=v1.36.3+k3s1 KUBE=/var/lib/sandbox/bin/kube-apiserver")

	host, err := m.Exec(t.Context(), "hostname")
	require.NoError(t, err)
	require.Equal(t, "first\n", host)
	_, err = m.Exec(t.Context(), "touch", "/usr/x")
	require.ErrorContains(t, err, "Read-only")
}

func TestMachine_CanBeBroken(t *testing.T) {
	ctx, host := t.Context(), newHost(t)
	m := boot(ctx, t, host, "victim", userData)
	eventually(t, func() bool { return reachable(m) })

	t.Run("cut and joined", func(t *testing.T) {
		require.NoError(t, m.Cut(ctx))
		require.False(t, reachable(m))
		require.NoError(t, m.Join(ctx))
		eventually(t, func() bool { return reachable(m) })
	})
	t.Run("frozen and thawed", func(t *testing.T) {
		require.NoError(t, m.Freeze(ctx))
		require.True(t, m.Running())
		require.False(t, answers(m))
		require.NoError(t, m.Thaw(ctx))
		eventually(t, func() bool { return answers(m) })
	})
	t.Run("rebooted", func(t *testing.T) {
		require.NoError(t, m.Reboot(ctx))
		eventually(t, func() bool { return answers(m) })
		_, err := m.ReadFile("/etc/rancher/k3s/config.yaml")
		require.NoError(t, err)
	})
	t.Run("killed and started", func(t *testing.T) {
		require.NoError(t, m.Kill(ctx))
		require.False(t, m.Running())
		require.False(t, reachable(m))
		require.NoError(t, m.Start(ctx))
		eventually(t, func() bool { return answers(m) })
	})
	t.Run("killed while frozen", func(t *testing.T) {
		require.NoError(t, m.Freeze(ctx))
		require.NoError(t, m.Kill(ctx))
		require.False(t, m.Running())
	})
	t.Run("wiped", func(t *testing.T) {
		require.NoError(t, m.Wipe(ctx))
		require.False(t, m.Running())
		_, err := m.ReadFile("/etc/rancher/k3s/config.yaml")
		require.ErrorIs(t, err, os.ErrNotExist)
	})
	t.Run("deleted", func(t *testing.T) {
		require.NoError(t, m.Start(ctx))
		require.NoError(t, m.Delete(ctx))
		_, err := host.Open("ns", "victim")
		require.ErrorIs(t, err, machine.ErrNotFound)
		require.Empty(t, processesNaming(t, "victim"))
	})
}

// answers tells whether a program in the machine answers a request.
func answers(m *machine.Machine) bool {
	conn, err := net.DialTimeout("tcp", net.JoinHostPort(m.Address().String(), "6443"), time.Second)
	if err != nil {
		return false
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("GET / HTTP/1.0\r\n\r\n")); err != nil {
		return false
	}
	if err := conn.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
		return false
	}
	_, err = conn.Read(make([]byte, 1))
	return err == nil
}

// processesNaming lists the command lines of the world that hold word.
func processesNaming(t *testing.T, word string) []string {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	require.NoError(t, err)
	var found []string
	for _, entry := range entries {
		if _, err := strconv.Atoi(entry.Name()); err != nil {
			continue
		}
		line, _ := os.ReadFile("/proc/" + entry.Name() + "/cmdline")
		if strings.Contains(string(line), word) {
			found = append(found, string(line))
		}
	}
	return found
}

// emptyUserData boots a machine that does nothing.
const emptyUserData = "#cloud-config\nruncmd:\n- mkdir -p /run/cluster-api && touch /run/cluster-api/bootstrap-success.complete\n"

func TestMachine_InstallFails(t *testing.T) {
	m := boot(t.Context(), t, newHost(t), "empty", emptyUserData)
	for name, tc := range map[string]struct{ environment, want string }{
		"unknown version": {"INSTALL_K3S_VERSION=v9.9.9+k3s1", "curl: (22) The requested URL returned error: 404\n[ERROR]  Download failed"},
		"no binary":       {"INSTALL_K3S_SKIP_DOWNLOAD=true", "[ERROR]  Executable k3s binary not found at /usr/local/bin/k3s"},
		"no token":        {"K3S_URL=https://x:6443 INSTALL_K3S_VERSION=v1.36.3+k3s1", "[ERROR]  Defaulted k3s exec command to 'agent'"},
		"plain http":      {"K3S_URL=http://x:6443 K3S_TOKEN=x INSTALL_K3S_VERSION=v1.36.3+k3s1", "[ERROR]  Only https:// URLs are supported for K3S_URL"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := m.Exec(t.Context(), "sh", "-c", "curl -sfL https://get.k3s.io | "+tc.environment+" sh -")
			require.Error(t, err)
			require.Contains(t, out, tc.want)
		})
	}
}

func TestMachine_InstallCapturesEnvironmentAndArguments(t *testing.T) {
	m := boot(t.Context(), t, newHost(t), "agent", emptyUserData)
	_, err := m.Exec(t.Context(), "sh", "-c", "curl -sfL https://get.k3s.io | K3S_URL=https://x:6443 K3S_TOKEN='a b' "+
		"INSTALL_K3S_VERSION=v1.36.3+k3s1 INSTALL_K3S_EXEC='agent --node-label a=b' sh -s - --flag \"it's two\"")
	require.NoError(t, err)

	state, err := m.Exec(t.Context(), "systemctl", "is-active", "k3s-agent")
	require.NoError(t, err, "the install script starts the service and waits for it")
	require.Equal(t, "active\n", state)
	log, err := m.ReadFile("/var/log/k3s-agent.log")
	require.NoError(t, err)
	require.Contains(t, string(log), "/usr/local/bin/k3s agent --node-label a=b --flag it's two")
	environment, err := m.ReadFile("/etc/systemd/system/k3s-agent.service.env")
	require.NoError(t, err)
	require.Equal(t, "K3S_TOKEN='a b'\nK3S_URL='https://x:6443'\n", string(environment))
	out, err := m.Exec(t.Context(), "sh", "-c", "curl -sfL https://get.k3s.io | K3S_URL=https://x:6443 K3S_TOKEN='a b' "+
		"INSTALL_K3S_VERSION=v1.36.3+k3s1 INSTALL_K3S_EXEC='agent --node-label a=b' sh -s - --flag \"it's two\"")
	require.NoError(t, err)
	require.Contains(t, out, "No change detected so skipping service start")
}

func TestMachine_RunsARealServerBesideAnEmulatedNode(t *testing.T) {
	host := newHost(t)
	host.K3sBinary = filepath.Join(t.TempDir(), "real-k3s")
	require.NoError(t, os.WriteFile(host.K3sBinary, []byte(strings.Replace(placeholder, "6443", "6444", 1)), 0o755))
	m := boot(t.Context(), t, host, "real", userData)

	server, err := m.ReadFile("/var/log/k3s.log")
	require.NoError(t, err)
	require.Contains(t, string(server), "/var/lib/sandbox/k3s server --disable-agent")
	eventually(t, func() bool {
		node, err := m.ReadFile("/var/log/k3s-node.log")
		return err == nil && strings.Contains(string(node), "/usr/local/bin/k3s node K3S_VERSION=v1.36.3+k3s1")
	})
}

func TestMachine_BringsK3sAlongInItsImage(t *testing.T) {
	host := newHost(t)
	m, err := host.Create(t.Context(), machine.Config{
		Namespace: "ns", Name: "airgap", Preinstalled: "v1.36.3+k3s1", UserData: []byte(emptyUserData),
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Delete(context.Background())) })
	require.NoError(t, m.Start(t.Context()))
	out, err := m.Exec(t.Context(), "sh", "-c", "INSTALL_K3S_SKIP_DOWNLOAD=true INSTALL_K3S_SKIP_START=true sh /opt/install.sh")
	require.NoError(t, err)
	require.Contains(t, out, "Skipping k3s download and verify")
	unit, err := m.ReadFile("/etc/systemd/system/k3s.service")
	require.NoError(t, err)
	require.Contains(t, string(unit), "Environment=K3S_VERSION=v1.36.3+k3s1\n")
}

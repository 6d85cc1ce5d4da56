//go:build conformance

package conformance

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The tests of this file are about the emulator's node half and about its
// manners as a process: agents of a real K3s need a container runtime.

const agentToken = "workers"

func onlyEmulator(t *testing.T) {
	t.Helper()
	if !emulated {
		t.Skip("needs no kubelet: the node half is tested with the emulator only")
	}
}

// TestEmulatorNodes runs one server with a Node, and agents.
func TestEmulatorNodes(t *testing.T) {
	besideOthers(t)
	onlyEmulator(t)
	s1, w1, w2 := newMachine(t, "e", 21), newMachine(t, "e", 22), newMachine(t, "e", 23)
	server := settings{"cluster-init": true, "token": password, "agent-token": agentToken, "disable-cloud-controller": true}
	s1.writeConfig(t, server)
	p1, ready := startNotified(t, s1)
	p1.waitUp(t)
	assert.Equal(t, "READY=1", strings.TrimSpace(<-ready))
	kube := s1.kube(t)

	t.Run("server", func(t *testing.T) {
		waitReady(t, s1, "e21")
		node := getNode(t, kube, "e21")
		assert.Equal(t, "v1.36.3+k3s1", node.Status.NodeInfo.KubeletVersion)
		assert.NotContains(t, node.Labels, "node-role.kubernetes.io/master")
		assert.Empty(t, node.Spec.ProviderID)
		assert.Contains(t, node.Annotations["k3s.io/node-args"], `"--token","********"`)
		assert.NotContains(t, fmt.Sprint(node.Annotations), password)
	})
	t.Run("refused agents", func(t *testing.T) { refusedAgents(t, s1, w1) })
	t.Run("endless agents", func(t *testing.T) { endlessAgents(t, s1, w1) })

	w1.reset(t)
	w1.writeConfig(t, settings{
		"server": s1.url(""), "token": agentToken, "node-label": []string{"pool=a"}, "node-taint": []string{"x=y:NoSchedule"},
		"kubelet-arg": []string{"provider-id=test://w1"},
	})
	a1 := w1.start(t, "agent")
	t.Run("agent", func(t *testing.T) {
		waitReady(t, s1, "e22")
		node := getNode(t, kube, "e22")
		assert.Equal(t, "test://w1", node.Spec.ProviderID)
		assert.Equal(t, "a", node.Labels["pool"])
		assert.Equal(t, []corev1.Taint{{Key: "x", Value: "y", Effect: corev1.TaintEffectNoSchedule}}, node.Spec.Taints)
		worker := caller{user: "node", password: agentToken}
		assert.Equal(t, 403, worker.get(t, s1.url("/v1-k3s/server-bootstrap")).code)
		assert.Equal(t, 403, worker.get(t, s1.url("/db/info")).code)
	})
	t.Run("duplicate name", func(t *testing.T) {
		w2.writeConfig(t, settings{"server": s1.url(""), "token": agentToken, "node-name": "e22"})
		p := w2.start(t, "agent")
		p.waitLog(t, "Node password rejected, duplicate hostname or contents of '/etc/rancher/node/password' may not match server node-passwd entry, "+
			"try enabling a unique node name with the --with-node-id flag", 30*time.Second)
		assert.True(t, p.running())
		p.kill()
	})
	t.Run("bootstrap token", func(t *testing.T) { bootstrapToken(t, s1, w2) })
	t.Run("dead node", func(t *testing.T) { deadNode(t, s1, w1, a1) })
	t.Run("deleted node", func(t *testing.T) { deletedNode(t, s1, w1) })
	t.Run("watch", func(t *testing.T) { watchThroughProxy(t, s1) })
	t.Run("killed server", func(t *testing.T) { killedServer(t, s1, p1) })
	t.Run("older version", func(t *testing.T) {
		p := s1.startWithEnv(t, []string{"K3S_VERSION=v1.33.5+k3s1"}, "server")
		p.waitUp(t)
		waitNode(t, kube, "e21", time.Minute, func(node *corev1.Node) error {
			if node.Labels["node-role.kubernetes.io/master"] != "true" || node.Status.NodeInfo.KubeletVersion != "v1.33.5+k3s1" {
				return fmt.Errorf("labels %v, version %s", node.Labels, node.Status.NodeInfo.KubeletVersion)
			}
			return nil
		})
	})
}

// startNotified starts a server with a service manager's socket, and returns
// what is sent to it.
func startNotified(t *testing.T, m *machine) (*process, <-chan string) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	messages := make(chan string, 1)
	go func() {
		buffer := make([]byte, 256)
		n, err := conn.Read(buffer)
		if err == nil {
			messages <- string(buffer[:n])
		}
	}()
	return m.startWithEnv(t, []string{"NOTIFY_SOCKET=" + socket}, "server"), messages
}

func waitReady(t *testing.T, asked *machine, name string) {
	t.Helper()
	waitNode(t, asked.kube(t), name, time.Minute, func(node *corev1.Node) error {
		if condition(node, corev1.NodeReady).Status != corev1.ConditionTrue {
			return fmt.Errorf("node %s isn't ready", name)
		}
		for _, taint := range node.Spec.Taints {
			if strings.HasPrefix(taint.Key, "node.kubernetes.io/") {
				return fmt.Errorf("node %s has taint %s", name, taint.Key)
			}
		}
		if len(node.Finalizers) != 2 {
			return fmt.Errorf("finalizers %v", node.Finalizers)
		}
		return nil
	})
}

// refusedAgents are configurations that an agent doesn't start with.
func refusedAgents(t *testing.T, s1, m *machine) {
	for name, row := range map[string]struct {
		config settings
		want   string
	}{
		"no token":    {settings{"server": s1.url("")}, "Error: --token is required"},
		"no server":   {settings{"token": agentToken}, "Error: --server is required"},
		"server key":  {settings{"server": s1.url(""), "token": agentToken, "tls-san": "x"}, "Error: flag provided but not defined: -tls-san"},
		"role label":  {settings{"server": s1.url(""), "token": agentToken, "node-label": "node-role.kubernetes.io/worker=x"}, "unknown 'kubernetes.io' or 'k8s.io' labels specified with --node-labels: [node-role.kubernetes.io/worker]"},
		"wrong taint": {settings{"server": s1.url(""), "token": agentToken, "node-taint": "x=y"}, "invalid taint spec: x=y"},
	} {
		t.Run(name, func(t *testing.T) {
			m.reset(t)
			m.writeConfig(t, row.config)
			p := m.start(t, "agent")
			assert.Equal(t, 1, p.waitExit(t, 30*time.Second))
			assert.Contains(t, p.message(), row.want)
		})
	}
}

// endlessAgents try again for ever.
func endlessAgents(t *testing.T, s1, m *machine) {
	for name, row := range map[string]struct{ token, want string }{
		"wrong token": {"wrong", "Waiting to retrieve agent configuration; server is not ready: failed to retrieve configuration from server: not authorized"},
		"wrong hash": {
			"K10" + strings.Repeat("0", 64) + "::node:" + agentToken,
			"Failed to validate connection to cluster at " + s1.url("") + ": token CA hash does not match the Cluster CA certificate hash: ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			m.reset(t)
			m.writeConfig(t, settings{"server": s1.url(""), "token": row.token})
			p := m.start(t, "agent")
			eventually(t, 30*time.Second, func() error {
				if strings.Count(p.message(), row.want) < 2 {
					return fmt.Errorf("not twice in the log: %s", row.want)
				}
				return nil
			})
			assert.True(t, p.running())
			p.stop(t)
		})
	}
}

// bootstrapToken: kube-apiserver knows the token, and the agent joins with it.
func bootstrapToken(t *testing.T, s1, m *machine) {
	_, err := s1.kube(t).CoreV1().Secrets("kube-system").Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-abcdef"},
		Type:       corev1.SecretTypeBootstrapToken,
		StringData: map[string]string{
			"token-id": "abcdef", "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true",
			"auth-extra-groups": "system:bootstrappers:k3s:default-node-token",
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	m.reset(t)
	m.writeConfig(t, settings{"server": s1.url(""), "token": "abcdef.0123456789abcdef", "with-node-id": true})
	p := m.start(t, "agent")
	eventually(t, 30*time.Second, func() error {
		id, err := readFile(m.path("etc", "rancher", "node", "id"))
		if err != nil {
			return err
		}
		_, err = s1.kube(t).CoreV1().Nodes().Get(t.Context(), "e23-"+strings.TrimSpace(id), metav1.GetOptions{})
		return err
	})
	p.kill()
}

// deadNode: a Node that is silent becomes Unknown, and ready again when it isn't.
func deadNode(t *testing.T, s1, m *machine, agent *process) {
	agent.kill()
	waitNode(t, s1.kube(t), "e22", 90*time.Second, func(node *corev1.Node) error {
		ready := condition(node, corev1.NodeReady)
		if ready.Status != corev1.ConditionUnknown || len(node.Spec.Taints) != 3 {
			return fmt.Errorf("condition %v, taints %v", ready, node.Spec.Taints)
		}
		assert.Equal(t, "NodeStatusUnknown", ready.Reason)
		return nil
	})
	m.start(t, "agent")
	waitReady(t, s1, "e22")
}

// deletedNode: the Node goes, with its password, and an agent that is restarted
// comes back with its token.
func deletedNode(t *testing.T, s1, m *machine) {
	kube := s1.kube(t)
	require.NoError(t, runCommand("sh", "-c", "kill -9 $(ip netns pids "+m.name+")"))
	require.NoError(t, kube.CoreV1().Nodes().Delete(t.Context(), "e22", metav1.DeleteOptions{}))
	eventually(t, 30*time.Second, func() error {
		_, err := kube.CoreV1().Nodes().Get(t.Context(), "e22", metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("node is still there: %v", err)
		}
		_, err = kube.CoreV1().Secrets("kube-system").Get(t.Context(), "e22.node-password.k3s", metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("password is still there: %v", err)
		}
		return nil
	})
	p := m.start(t, "agent")
	waitReady(t, s1, "e22")
	assert.Contains(t, p.message(), "Node authorization rejected, retrying without client certificate authentication")
}

// watchThroughProxy: events arrive while the request is open.
func watchThroughProxy(t *testing.T, s1 *machine) {
	kube := s1.kube(t)
	watch, err := kube.CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	defer watch.Stop()
	for i := range 3 {
		name := fmt.Sprintf("watched-%d", i)
		_, err := kube.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		require.NoError(t, err)
		select {
		case event := <-watch.ResultChan():
			assert.Equal(t, name, event.Object.(*corev1.ConfigMap).Name)
		case <-time.After(5 * time.Second):
			t.Fatal("no event")
		}
	}
}

// killedServer: nothing of a server outlives it.
func killedServer(t *testing.T, s1 *machine, p *process) {
	p.kill()
	eventually(t, 10*time.Second, func() error {
		left, err := exec.Command("ip", "netns", "pids", s1.name).Output()
		if err != nil || len(left) > 0 {
			return fmt.Errorf("processes %s left: %w", left, err)
		}
		return nil
	})
	events, err := os.ReadFile(s1.path("var", "log", "k3s", "etcd-members.jsonl"))
	require.NoError(t, err)
	assert.Contains(t, string(events), `"event":"start"`)
}

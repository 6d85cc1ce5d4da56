//go:build conformance

package conformance

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// fatal starts the line of a server that ends at once.
const fatal = "Error: preparing server: failed to bootstrap cluster data: "

// checked is what follows if the token or the CA is found wrong.
const checked = fatal + "failed to check if bootstrap data has been initialized: failed to validate token: "

// TestCluster is sections 3, 4 and 5 of the measurements on one cluster, in the
// order in which it grows, and shrinks to nothing.
func TestCluster(t *testing.T) {
	besideOthers(t)
	s1, s2, s3 := newMachine(t, "s", 1), newMachine(t, "s", 2), newMachine(t, "s", 3)
	s1.configure(t, settings{"cluster-init": true, "token": password})
	p1 := s1.start(t, "server")
	p1.waitUp(t)

	t.Run("refused", func(t *testing.T) { refusedJoins(t, s1, s2) })
	t.Run("without token", func(t *testing.T) { joinWithoutToken(t, s1, s2) })

	s2.reset(t)
	s2.configure(t, settings{"server": s1.url(""), "token": password})
	p2 := s2.start(t, "server")
	t.Run("short token", func(t *testing.T) { shortToken(t, s1, p2) })
	p2.waitUp(t)
	waitMembers(t, s1, time.Minute, s1, s2)
	t.Run("same files", func(t *testing.T) { sameFiles(t, s1, s2) })
	t.Run("connect", func(t *testing.T) { connectRows(t, s1, s2) })
	t.Run("duplicate name", func(t *testing.T) { duplicateName(t, s1, s2, s3) })

	s3.reset(t)
	s3.configure(t, settings{"server": s1.url(""), "token": strings.TrimSpace(s1.read(t, s1.server("token")))})
	p3 := secondLearner(t, s1, s3)
	p3.waitUp(t)
	assert.NotContains(t, p3.output(), "does not include a CA hash")
	waitMembers(t, s1, time.Minute, s1, s2, s3)

	c := &cluster{machines: map[string]*machine{"s1": s1, "s2": s2, "s3": s3}, processes: map[string]*process{"s1": p1, "s2": p2, "s3": p3}}
	t.Run("nodes", func(t *testing.T) { nodes(t, c) })
	t.Run("remove", func(t *testing.T) { removeMember(t, c) })
	t.Run("rejoin", func(t *testing.T) { rejoin(t, c) })
	t.Run("remove lease holder", func(t *testing.T) { removeHolder(t, c) })
	t.Run("last member", func(t *testing.T) { lastMember(t, c) })
}

// refusedJoins are joins with a fresh disk that end at once, with exit code 1.
func refusedJoins(t *testing.T, s1, joiner *machine) {
	full := strings.TrimSpace(s1.read(t, s1.server("token")))
	hash := full[len("K10") : len("K10")+64]
	otherHash := strings.Repeat("0", 64)
	for _, row := range []struct {
		name     string
		settings settings
		want     []string
	}{
		{"wrong short token", settings{"token": "wrong"}, []string{
			"Skipping cluster configuration validation: not authorized", fatal + "not authorized",
		}},
		{"right hash, wrong password", settings{"token": "K10" + hash + "::server:wrong"}, []string{
			"Skipping cluster configuration validation: not authorized", fatal + "not authorized",
		}},
		{"wrong hash", settings{"token": "K10" + otherHash + "::server:" + password}, []string{
			checked + "token CA hash does not match the Cluster CA certificate hash: " + otherHash + " != " + hash,
		}},
		{"short hash", settings{"token": "K10short::server:" + password}, []string{checked + "invalid token CA hash length"}},
		{"bootstrap token", settings{"token": "abcdef.0123456789abcdef"}, []string{fatal + "not authorized"}},
		{"user node, other cluster-cidr", settings{"token": "K10" + hash + "::node:" + password, "cluster-cidr": "10.52.0.0/16"}, []string{
			"critical configuration mismatched: ClusterIPRanges.slice[0].IP.slice[13]",
			"critical configuration mismatched: ClusterIPRange.IP.slice[13]",
			fatal + "failed to validate server configuration: critical configuration value mismatch between servers",
		}},
		{"unreachable server, with cluster-init", settings{"server": "https://10.99.0.99:6443", "token": password, "cluster-init": true}, []string{
			checked + `failed to get CA certs: Get "https://10.99.0.99:6443/cacerts": dial tcp`,
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			joiner.reset(t)
			config := settings{"server": s1.url("")}
			for key, value := range row.settings {
				config[key] = value
			}
			joiner.configure(t, config)
			p := joiner.start(t, "server")
			assert.Equal(t, 1, p.waitExit(t, time.Minute))
			for _, text := range row.want {
				assert.Contains(t, p.message(), text)
			}
		})
	}
	waitMembers(t, s1, 10*time.Second, s1)
}

// joinWithoutToken: a server URL without a token founds another cluster, on
// SQLite, without a word.
func joinWithoutToken(t *testing.T, s1, joiner *machine) {
	joiner.reset(t)
	joiner.configure(t, settings{"server": s1.url("")})
	p := joiner.start(t, "server")
	p.waitUp(t)
	assert.FileExists(t, joiner.server("db", "state.db"))
	assert.NotEqual(t, s1.read(t, s1.server("tls", "server-ca.crt")), joiner.read(t, joiner.server("tls", "server-ca.crt")))
	full := strings.TrimSpace(joiner.read(t, joiner.server("token")))
	assert.Regexp(t, `^K10[0-9a-f]{64}::server:[0-9a-f]{32}$`, full)
	own := caller{user: "server", password: full[strings.LastIndex(full, ":")+1:]}
	info := own.get(t, joiner.url("/db/info"))
	assert.Equal(t, 400, info.code)
	assert.Contains(t, info.body, "etcd datastore disabled")
	assert.Equal(t, 401, asWrong.get(t, joiner.url("/db/info")).code, "who asks is checked first")
	data := own.get(t, joiner.url("/v1-k3s/server-bootstrap"))
	assert.Equal(t, 400, data.code)
	assert.Contains(t, data.body, "etcd disabled")
	p.stop(t)
	waitMembers(t, s1, 10*time.Second, s1)
}

// shortToken: the joining server is a learner first, and then a voter.
func shortToken(t *testing.T, s1 *machine, joiner *process) {
	sawLearner := false
	eventually(t, time.Minute, func() error {
		if !joiner.running() {
			return stop{fmt.Errorf("K3s ended")}
		}
		members, err := s1.members(password)
		if err != nil {
			return err
		}
		if len(members.Members) < 2 {
			return fmt.Errorf("not a member yet")
		}
		for _, member := range members.Members {
			if member.IsLearner {
				sawLearner = true
				return fmt.Errorf("still a learner")
			}
		}
		return nil
	})
	assert.True(t, sawLearner, "the new member should be a learner at first")
	assert.Contains(t, joiner.output(), "does not include a CA hash")
}

// sameFiles: all servers have the same CAs.
func sameFiles(t *testing.T, a, b *machine) {
	for _, file := range []string{
		"tls/server-ca.crt", "tls/server-ca.key", "tls/client-ca.crt", "tls/request-header-ca.crt",
		"tls/etcd/server-ca.crt", "tls/etcd/peer-ca.crt", "tls/service.key", "cred/passwd", "token",
	} {
		assert.Equal(t, a.read(t, a.server(file)), b.read(t, b.server(file)), file)
	}
}

// duplicateName: a server named like a member asks for its own end, with exit
// code 0.
func duplicateName(t *testing.T, s1, s2, joiner *machine) {
	joiner.reset(t)
	joiner.configure(t, settings{"server": s1.url(""), "token": password, "node-name": s2.name})
	p := joiner.start(t, "server")
	assert.Equal(t, 0, p.waitExit(t, 2*time.Minute))
	assert.Contains(t, p.message(), "Shutdown request received")
	assert.Contains(t, p.message(), "etcd cluster join failed: duplicate node name found, please use a unique name for this node")
	waitMembers(t, s1, 10*time.Second, s1, s2)
}

// secondLearner: while another member is a learner, a server waits with joining.
func secondLearner(t *testing.T, s1, joiner *machine) *process {
	etcd := s1.etcd(t)
	added, err := etcd.MemberAddAsLearner(withTimeout(t), []string{"https://10.99.0.98:2380"})
	require.NoError(t, err)
	p := joiner.start(t, "server")
	p.waitLog(t, "etcdserver: too many learner members in cluster", time.Minute)
	assert.True(t, p.running())
	_, err = etcd.MemberRemove(withTimeout(t), added.Member.ID)
	require.NoError(t, err)
	return p
}

// nodes: what K3s does to Node objects that it didn't make.
func nodes(t *testing.T, c *cluster) {
	s1 := c.machines["s1"]
	kube := s1.kube(t)
	createNode(t, kube, "s1", nil, nil)
	c.processes["s1"].waitLog(t, "handler managed-etcd-metadata-controller: the server rejected our request due to an error in our request", 30*time.Second)
	require.NoError(t, kube.CoreV1().Nodes().Delete(t.Context(), "s1", metav1.DeleteOptions{}))
	eventually(t, 30*time.Second, func() error {
		if _, err := kube.CoreV1().Nodes().Get(t.Context(), "s1", metav1.GetOptions{}); err == nil {
			return fmt.Errorf("node is still there")
		}
		return nil
	})

	dummy := map[string]string{"dummy": "x"}
	for name := range c.machines {
		createNode(t, kube, name, dummy, dummy)
	}
	createNode(t, kube, "worker", dummy, dummy)
	for name, m := range c.machines {
		waitNode(t, kube, name, time.Minute, func(node *corev1.Node) error {
			voter := condition(node, "EtcdIsVoter")
			if node.Annotations[annotationName] == "" || len(node.Finalizers) < 2 || voter.Status != corev1.ConditionTrue {
				return fmt.Errorf("node %s: annotations %v, finalizers %v, condition %v", name, node.Annotations, node.Finalizers, voter)
			}
			assert.Equal(t, m.read(t, m.server("db", "etcd", "name")), node.Annotations[annotationName])
			assert.Equal(t, m.ip, node.Annotations[annotationAddress])
			assert.Equal(t, "true", node.Labels["node-role.kubernetes.io/etcd"])
			assert.ElementsMatch(t, []string{"wrangler.cattle.io/node", "wrangler.cattle.io/managed-etcd-controller"}, node.Finalizers)
			assert.Equal(t, "MemberNotLearner", voter.Reason)
			assert.Equal(t, "Node is a voting member of the etcd cluster", voter.Message)
			return nil
		})
	}
	waitNode(t, kube, "worker", time.Minute, func(node *corev1.Node) error {
		if len(node.Finalizers) != 2 {
			return fmt.Errorf("finalizers %v: every Node has both", node.Finalizers)
		}
		return nil
	})
	raw, err := os.ReadFile(s1.path("etc", "rancher", "k3s", "k3s.yaml"))
	require.NoError(t, err)
	assert.Contains(t, string(raw), "https://127.0.0.1:6443")
}

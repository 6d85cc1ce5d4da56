//go:build conformance

package conformance

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	annotationName    = "etcd.k3s.cattle.io/node-name"
	annotationAddress = "etcd.k3s.cattle.io/node-address"
	annotationRemove  = "etcd.k3s.cattle.io/remove"
	annotationRemoved = "etcd.k3s.cattle.io/removed-node-name"
)

// cluster is a running cluster, by node name; a server that is let go is taken
// out.
type cluster struct {
	machines  map[string]*machine
	processes map[string]*process
}

// lease is the node that holds the lease for member removal.
func (c *cluster) lease(t *testing.T, asked *machine) string {
	t.Helper()
	lease, err := asked.kube(t).CoordinationV1().Leases("kube-system").Get(t.Context(), "k3s-etcd", metav1.GetOptions{})
	require.NoError(t, err)
	require.NotNil(t, lease.Spec.HolderIdentity)
	return *lease.Spec.HolderIdentity
}

// others are the machines but for one.
func (c *cluster) others(name string) []*machine {
	var out []*machine
	for _, other := range slices.Sorted(maps.Keys(c.machines)) {
		if other != name {
			out = append(out, c.machines[other])
		}
	}
	return out
}

func (c *cluster) drop(name string) {
	delete(c.machines, name)
	delete(c.processes, name)
}

// etcdAnnotations are those that start with K3s' prefix.
func etcdAnnotations(node *corev1.Node) map[string]string {
	out := map[string]string{}
	for _, key := range []string{annotationName, annotationAddress, annotationRemove, annotationRemoved} {
		if value, found := node.Annotations[key]; found {
			out[key] = value
		}
	}
	return out
}

// removeMember: three members, and one that doesn't hold the lease is removed.
func removeMember(t *testing.T, c *cluster) {
	s3 := c.machines["s3"]
	if c.lease(t, c.machines["s1"]) == "s3" {
		t.Fatal("s3 holds the lease; this row needs another")
	}
	name := s3.read(t, s3.server("db", "etcd", "name"))
	kube := c.machines["s1"].kube(t)
	askRemoval(t, kube, "s3")
	waitMembers(t, c.machines["s1"], 15*time.Second, c.others("s3")...)
	waitNode(t, kube, "s3", 15*time.Second, func(node *corev1.Node) error {
		if node.Annotations[annotationRemoved] == "" {
			return fmt.Errorf("annotations %v", etcdAnnotations(node))
		}
		assert.Equal(t, map[string]string{annotationRemoved: name}, etcdAnnotations(node))
		return nil
	})
	waitNode(t, kube, "s3", 30*time.Second, func(node *corev1.Node) error {
		voter := condition(node, "EtcdIsVoter")
		if voter.Status != corev1.ConditionFalse || voter.Reason != "NotAMember" {
			return fmt.Errorf("condition %v", voter)
		}
		assert.Equal(t, "Node is not a member of the etcd cluster", voter.Message)
		return nil
	})
	eventually(t, 15*time.Second, func() error {
		if _, err := readFile(s3.server("db", "etcd", "tombstone")); err != nil {
			return err
		}
		return nil
	})
	p3 := c.processes["s3"]
	p3.waitLog(t, "This node has been removed from the cluster - please restart k3s to rejoin the cluster", time.Minute)
	assert.True(t, p3.running(), "a removed server that holds no lease stays up")
	assert.Equal(t, 200, anonymous.get(t, s3.url("/ping")).code)
	assert.Equal(t, 500, asServer.get(t, s3.url("/db/info")).code)
	assert.Equal(t, 200, asServer.get(t, s3.url("/v1-k3s/server-bootstrap")).code)
}

// rejoin: a removed server with a server URL comes back as a new member, and its
// Node can be deleted without it.
func rejoin(t *testing.T, c *cluster) {
	s3 := c.machines["s3"]
	kube := c.machines["s1"].kube(t)
	removed := getNode(t, kube, "s3").Annotations[annotationRemoved]
	c.processes["s3"].stop(t)
	p3 := s3.start(t, "server")
	p3.waitUp(t)
	assert.Contains(t, p3.message(), "tombstone file has been detected, removing ${datadir}/server/db to rejoin the cluster")
	waitMembers(t, c.machines["s1"], time.Minute, c.machines["s1"], c.machines["s2"], s3)
	name := s3.read(t, s3.server("db", "etcd", "name"))
	assert.NotEqual(t, removed, name)
	waitNode(t, kube, "s3", time.Minute, func(node *corev1.Node) error {
		want := map[string]string{annotationName: name, annotationAddress: s3.ip, annotationRemoved: removed}
		if got := etcdAnnotations(node); !maps.Equal(got, want) {
			return fmt.Errorf("annotations %v, want %v", got, want)
		}
		return nil
	})

	require.NoError(t, kube.CoreV1().Nodes().Delete(t.Context(), "s3", metav1.DeleteOptions{}))
	eventually(t, 30*time.Second, func() error {
		if _, err := kube.CoreV1().Nodes().Get(t.Context(), "s3", metav1.GetOptions{}); err == nil {
			return fmt.Errorf("node is still there")
		}
		return nil
	})
	members, err := c.machines["s1"].members(password)
	require.NoError(t, err)
	require.Len(t, members.Members, 3, "the member is an orphan now")
	for _, member := range members.Members {
		if member.Name == name {
			_, err := c.machines["s1"].etcd(t).MemberRemove(withTimeout(t), member.ID)
			require.NoError(t, err)
		}
	}
	p3.kill()
	c.drop("s3")
	waitMembers(t, c.machines["s1"], 30*time.Second, c.machines["s1"], c.machines["s2"])
}

// removeHolder: two members, and the one that holds the lease for removals is
// removed. It can't write down that it is gone; the other one does, when it has
// the lease. Without a server URL the removed one refuses to start again.
func removeHolder(t *testing.T, c *cluster) {
	holder := c.lease(t, c.machines["s1"])
	require.Equal(t, "s1", holder, "the first server should still hold the lease")
	s1, s2 := c.machines["s1"], c.machines["s2"]
	name := s1.read(t, s1.server("db", "etcd", "name"))
	kube := s2.kube(t)
	askRemoval(t, kube, "s1")
	waitMembers(t, s2, 30*time.Second, s2)
	waitNode(t, kube, "s1", 2*time.Minute, func(node *corev1.Node) error {
		if node.Annotations[annotationRemoved] == "" {
			return fmt.Errorf("annotations %v", etcdAnnotations(node))
		}
		assert.Equal(t, map[string]string{annotationRemoved: name}, etcdAnnotations(node))
		return nil
	})
	assert.Equal(t, "s2", c.lease(t, s2))
	p1 := c.processes["s1"]
	assert.NotEqual(t, 0, p1.waitExit(t, time.Minute), "the holder of a lease ends when it can't renew it")
	assert.Contains(t, p1.message(), "leaderelection lost")

	again := s1.start(t, "server")
	assert.Equal(t, 1, again.waitExit(t, time.Minute))
	assert.Contains(t, again.message(), "Error: preparing server: failed to start supervisor listener: tombstone file has been detected but --server is empty: "+
		"backup and delete ${datadir}/server/db to create a new cluster, or set --server to rejoin the cluster")
	c.drop("s1")
}

// lastMember: the last member stays, whatever is asked.
func lastMember(t *testing.T, c *cluster) {
	const refusal = "etcdserver: re-configuration failed due to not enough started members"
	s2, p2 := c.machines["s2"], c.processes["s2"]
	kube := s2.kube(t)
	name := s2.read(t, s2.server("db", "etcd", "name"))
	askRemoval(t, kube, "s2")
	p2.waitLog(t, "etcd member removal rejected, clearing remove annotation: "+refusal, 30*time.Second)
	waitNode(t, kube, "s2", 15*time.Second, func(node *corev1.Node) error {
		want := map[string]string{annotationName: name, annotationAddress: s2.ip}
		if got := etcdAnnotations(node); !maps.Equal(got, want) {
			return fmt.Errorf("annotations %v, want %v", got, want)
		}
		return nil
	})

	require.NoError(t, kube.CoreV1().Nodes().Delete(t.Context(), "s2", metav1.DeleteOptions{}))
	p2.waitLog(t, "handler managed-etcd-controller: "+refusal, 30*time.Second)
	node := getNode(t, kube, "s2")
	assert.NotNil(t, node.DeletionTimestamp)
	assert.Contains(t, node.Finalizers, "wrangler.cattle.io/managed-etcd-controller")
	waitMembers(t, s2, 10*time.Second, s2)
}

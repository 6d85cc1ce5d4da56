//go:build e2e

package e2e

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capk3s/capk3s/test/world"
)

// TestMove_ThereAndBackChangesNothing moves a cluster to another management cluster and back with clusterctl.
func TestMove_ThereAndBackChangesNothing(t *testing.T) {
	t.Parallel()
	other := startManagement(t, 2, "move")
	c := newCluster(t, "move", 1, 1)
	c.awaitSettled(1, 1)
	c.awaitMovable()
	before := c.keepsakes()
	home := c.at
	require.NoError(t, other.Client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.namespace}}))

	for _, target := range []*world.Management{other, home} {
		c.move(target)
		c.awaitSettled(1, 1)
		c.awaitMovable()
		c.awaitOwned(before)
		c.requireKept(before)
	}
	c.scale(3, 2)
	c.awaitSettled(3, 2)
	c.requireGrown(before)
}

// move has clusterctl move the cluster and checks that nothing stays behind.
func (c *cluster) move(target *world.Management) {
	c.t.Helper()
	_, err := c.at.Clusterctl(context.Background(), "move", "--namespace="+c.namespace, "--to-kubeconfig="+target.Kubeconfig)
	require.NoError(c.t, err)
	assert.Empty(c.t, c.objectsLeft(), "left in the source")
	c.at = target
}

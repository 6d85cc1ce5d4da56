//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
)

const (
	// fleet is the number of clusters that are at rest together, and of which one hangs then.
	fleet = 10

	// atOnce is how many of them boot at the same time.
	atOnce = 3
)

// TestFleet_CostsNothingAtRestAndAHangingClusterDelaysNoOther measures what needs a computer that does nothing else, so
// no other test runs beside it: an operator that is too slow there loses its lease, and starts again.
func TestFleet_CostsNothingAtRestAndAHangingClusterDelaysNoOther(t *testing.T) {
	clusters := newFleet(t)
	t.Run("ten clusters at rest cost nothing", func(t *testing.T) {
		c := clusters[0]
		c.t = t
		c.requireIdle()
	})
	t.Run("one that hangs delays no other", func(t *testing.T) {
		for _, c := range clusters {
			c.t = t
		}
		requireNoDelay(t, clusters[0], clusters[1:])
	})
	for _, c := range clusters {
		c.t = t
	}
}

// newFleet returns settled clusters of one server each; one has a worker too.
func newFleet(t *testing.T) []*cluster {
	t.Helper()
	clusters := make([]*cluster, fleet)
	workers := func(i int) int {
		if i == 1 {
			return 1
		}
		return 0
	}
	for i := range clusters {
		clusters[i] = newCluster(t, fmt.Sprintf("fleet-%d", i), 1, int32(workers(i))) //nolint:gosec // small
		if i >= atOnce {
			clusters[i-atOnce].awaitSettled(1, workers(i-atOnce))
		}
	}
	for i := fleet - atOnce; i < fleet; i++ {
		clusters[i].awaitSettled(1, workers(i))
	}
	// All at once: what each does when its turn comes is to wait for the end of its own.
	t.Cleanup(func() {
		for _, c := range clusters {
			require.NoError(t, c.at.Client.Delete(context.Background(), get(c, &clusterv1.Cluster{})))
		}
	})
	return clusters
}

// requireNoDelay freezes the only server of a cluster, so that its kernel accepts connections that nobody answers, and
// compares how long a change to each of the others takes with how long it took before.
func requireNoDelay(t *testing.T, hanging *cluster, others []*cluster) {
	t.Helper()
	undisturbed := slowestChange(t, hanging, others, "before")

	ctx := context.Background()
	machine, err := hanging.at.Host.Open(hanging.namespace, hanging.servers()[0].Name)
	require.NoError(t, err)
	require.NoError(t, machine.Freeze(ctx))
	t.Cleanup(func() { require.NoError(t, machine.Thaw(ctx)) })
	hanging.eventually("its control plane is seen to hang", func(context.Context) error {
		if conditions.IsTrue(hanging.controlPlane(), controlplanev1.AvailableCondition) {
			return fmt.Errorf("still available")
		}
		return nil
	})

	disturbed := slowestChange(t, hanging, others, "after")
	t.Logf("slowest change: %s before, %s while a cluster hangs", undisturbed, disturbed)
	require.Less(t, disturbed-undisturbed, time.Second)
}

// slowestChange changes one cluster after the other, each while the first one is being reconciled, and returns the
// longest time from the answer of the API server until the Machine has the change.
func slowestChange(t *testing.T, first *cluster, others []*cluster, value string) time.Duration {
	t.Helper()
	var slowest time.Duration
	for i, c := range others {
		first.label(fmt.Sprintf("%s-%d", value, i))
		c.label(value)
		start := time.Now()
		c.awaitLabel(value)
		slowest = max(slowest, time.Since(start))
	}
	return slowest
}

// label changes a label of the Machine template.
func (c *cluster) label(value string) {
	c.t.Helper()
	c.patch(c.controlPlane(), fmt.Sprintf(`{"spec":{"machineTemplate":{"metadata":{"labels":{"test":%q}}}}}`, value))
}

// awaitLabel waits until the servers' Machines have the label "test".
func (c *cluster) awaitLabel(value string) {
	c.t.Helper()
	c.eventually("label "+value, func(context.Context) error {
		for _, machine := range c.servers() {
			if machine.Labels["test"] != value {
				return fmt.Errorf("Machine %s has no label yet", machine.Name)
			}
		}
		return nil
	})
}

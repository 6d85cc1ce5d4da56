//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/cluster-api/util/conditions"

	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
)

const (
	// neighbours is the number of clusters of which one hangs.
	neighbours = 10

	// atOnce is how many of them boot at the same time.
	atOnce = 3
)

// TestHangingCluster_DoesNotDelayItsNeighbours freezes the only server of one cluster, so that its kernel accepts
// connections that nobody answers, and measures how long a change to each of the others takes.
func TestHangingCluster_DoesNotDelayItsNeighbours(t *testing.T) {
	t.Parallel()
	clusters := make([]*cluster, neighbours)
	for i := range clusters {
		clusters[i] = newCluster(t, fmt.Sprintf("isolation-%d", i), 1, 0)
		if i >= atOnce {
			clusters[i-atOnce].awaitSettled(1, 0)
		}
	}
	for _, c := range clusters[neighbours-atOnce:] {
		c.awaitSettled(1, 0)
	}
	hanging, others := clusters[0], clusters[1:]
	undisturbed := slowestChange(t, hanging, others, "before")

	ctx := context.Background()
	machine, err := management.Host.Open(hanging.namespace, hanging.servers()[0].Name)
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

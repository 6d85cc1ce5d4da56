//go:build e2e

package e2e

import (
	"context"
	"fmt"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capk3s/capk3s/test/chaos"
)

// silentSeconds is how long a server's Node may be known to be silent before its Machine counts as unhealthy.
const silentSeconds = 10

// checkHealth has Cluster API watch the health of the servers and leave the unhealthy ones to their control plane.
func (c *cluster) checkHealth(ctx context.Context) {
	c.t.Helper()
	c.create(ctx, &clusterv1.MachineHealthCheck{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: c.name},
		Spec: clusterv1.MachineHealthCheckSpec{
			ClusterName: c.name,
			Selector:    metav1.LabelSelector{MatchLabels: map[string]string{clusterv1.MachineControlPlaneLabel: ""}},
			Checks: clusterv1.MachineHealthCheckChecks{
				NodeStartupTimeoutSeconds: ptr.To[int32](0),
				UnhealthyNodeConditions: []clusterv1.UnhealthyNodeCondition{
					{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, TimeoutSeconds: ptr.To[int32](silentSeconds)},
				},
			},
		},
	})
}

// killServer pulls the plug of a server for good.
func (c *cluster) killServer(name string) {
	c.t.Helper()
	machine, err := c.at.Host.Open(c.namespace, name)
	require.NoError(c.t, err)
	require.NoError(c.t, machine.Kill(context.Background()))
}

// replaceDeadServer kills one of so many servers, whose health is watched, and waits until it is replaced. Its member
// must be gone before another one joins.
func (c *cluster) replaceDeadServer(token []byte, servers int) {
	c.t.Helper()
	dead, version := c.servers()[0].Name, c.controlPlane().Spec.Version
	most, _ := c.throughout(token, func() {
		c.killServer(dead)
		c.awaitMachineGone(dead)
		c.awaitServers(chaos.Cluster{Servers: servers, Version: version})
	})
	assert.Equal(c.t, servers, most, "servers at most")
	last := c.controlPlane().Status.LastRemediation
	assert.Equal(c.t, dead, last.Machine)
	assert.False(c.t, last.Time.IsZero())
}

// awaitMachineGone waits until a Machine is deleted.
func (c *cluster) awaitMachineGone(name string) {
	c.t.Helper()
	c.eventually("the end of Machine "+name, func(ctx context.Context) error {
		err := c.at.Client.Get(ctx, client.ObjectKey{Namespace: c.namespace, Name: name}, &clusterv1.Machine{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is still there: %w", err)
	})
}

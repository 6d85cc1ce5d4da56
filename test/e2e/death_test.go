//go:build e2e

package e2e

import (
	"context"
	"fmt"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
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

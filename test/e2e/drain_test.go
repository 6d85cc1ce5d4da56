//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestDrain_AServerStaysAMemberUntilItIsDrained deletes a server while a pod on it may not be evicted. It isn't the only
// one, which Cluster API wouldn't drain.
func TestDrain_AServerStaysAMemberUntilItIsDrained(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "drain", 3, 0)
	c.awaitSettled(3, 0)
	token, old := c.tokenSecret().Data["value"], c.servers()[0]
	budget := c.placePod(old.Status.NodeRef.Name)

	require.NoError(t, c.at.Client.Delete(t.Context(), &old))
	c.eventually("the drain", func(ctx context.Context) error { return c.checkDraining(ctx, &old) })
	removed := func() bool {
		return slices.ContainsFunc(c.etcdEvents(), func(event etcdEvent) bool { return event.Event == "remove" })
	}
	assert.Never(t, removed, 10*time.Second, 500*time.Millisecond, "a member is removed while the pod is there")

	require.NoError(t, c.workload.Client.Delete(t.Context(), budget))
	c.awaitMachineGone(old.Name)
	c.awaitSettled(3, 0)
	c.requireQuorumAllAlong()
	c.requireCustody(token)
}

// placePod has a pod run on a Node, and returns the budget that keeps it from being evicted.
func (c *cluster) placePod(node string) *policyv1.PodDisruptionBudget {
	c.t.Helper()
	labels := map[string]string{"app": "unevictable"}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "unevictable", Labels: labels},
		Spec: corev1.PodSpec{
			NodeName: node,
			// No kubelet would confirm the end of a pod that is given time.
			TerminationGracePeriodSeconds: ptr.To[int64](0),
			Containers:                    []corev1.Container{{Name: "app", Image: "app"}},
		},
	}
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: ptr.To(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: labels},
		},
	}
	require.NoError(c.t, c.workload.Client.Create(c.t.Context(), budget))
	require.NoError(c.t, c.workload.Client.Create(c.t.Context(), pod))
	pod.Status.Phase = corev1.PodRunning
	require.NoError(c.t, c.workload.Client.Status().Update(c.t.Context(), pod))
	return budget
}

// checkDraining is nil if the Machine waits for the pods on its Node.
func (c *cluster) checkDraining(ctx context.Context, machine *clusterv1.Machine) error {
	if err := c.at.Client.Get(ctx, client.ObjectKeyFromObject(machine), machine); err != nil {
		return err
	}
	if reason := conditions.GetReason(machine, clusterv1.MachineDeletingCondition); reason != clusterv1.MachineDeletingDrainingNodeReason {
		return fmt.Errorf("Machine %s: %s", machine.Name, reason)
	}
	return nil
}

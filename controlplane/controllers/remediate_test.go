package controllers

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
)

// reportUnhealthy writes to a Machine what a MachineHealthCheck writes.
func reportUnhealthy(t *testing.T, machine *clusterv1.Machine) {
	t.Helper()
	before := machine.DeepCopy()
	for _, conditionType := range []string{clusterv1.MachineHealthCheckSucceededCondition, clusterv1.MachineOwnerRemediatedCondition} {
		conditions.Set(machine, metav1.Condition{Type: conditionType, Status: metav1.ConditionFalse, Reason: "Test"})
	}
	require.NoError(t, env.Client.Status().Patch(context.Background(), machine, client.MergeFrom(before)))
}

func TestReconcile_ReplacesAFirstServerThatNeverComesUp(t *testing.T) {
	f := newFixture(t, func(cp *controlplanev1.KThreesControlPlane) {
		cp.Spec.Remediation.MaxRetry = ptr.To[int32](1)
	})
	f.run(t, 2)
	first := f.listMachines(t)[0]
	reportUnhealthy(t, &first)
	f.run(t, 1)
	require.Empty(t, f.listMachines(t))
	require.NotNil(t, remediationOwed(f.controlPlane))
	assert.Equal(t, first.Name, remediationOwed(f.controlPlane).Machine)
	token := f.tokenValue(t)

	f.run(t, 3)
	machines := f.listMachines(t)
	require.Len(t, machines, 1)
	second := machines[0]
	require.NotNil(t, remediationFor(&second))
	assert.Equal(t, first.Name, remediationFor(&second).Machine)
	config := &bootstrapv1.KThreesConfig{}
	require.NoError(t, env.Client.Get(context.Background(), client.ObjectKeyFromObject(&second), config))
	assert.Equal(t, bootstrapv1.OrderInitAnew, config.Annotations[bootstrapv1.OrderAnnotation])
	assert.Equal(t, token, f.tokenValue(t), "no new token")
	assert.Equal(t, first.Name, f.controlPlane.Status.LastRemediation.Machine)
	assert.Nil(t, remediationOwed(f.controlPlane), "as many Machines as replicas")

	// The record stays on the Machine while other metadata is applied; a second failure counts, a third is one too many.
	f.run(t, 2)
	reportUnhealthy(t, &f.listMachines(t)[0])
	f.run(t, 3)
	third := f.listMachines(t)[0]
	require.NotNil(t, remediationFor(&third))
	assert.Equal(t, int32(1), remediationFor(&third).RetryCount)
	reportUnhealthy(t, &third)
	f.run(t, 3)
	machines = f.listMachines(t)
	require.Len(t, machines, 1)
	assert.Equal(t, third.Name, machines[0].Name)
	assert.Equal(t, controlplanev1.CannotBeRemediatedReason, conditions.GetReason(&machines[0], clusterv1.MachineOwnerRemediatedCondition))
	assert.Contains(t, conditions.GetMessage(f.controlPlane, controlplanev1.RemediatingCondition), "spec.remediation.maxRetry")

	f.counter.Reset()
	f.run(t, 2)
	assert.Empty(t, f.counter.Writes(), "and nothing is written while it stays so")
}

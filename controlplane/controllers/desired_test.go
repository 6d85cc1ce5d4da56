package controllers

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/core/webhooks/admission"
	"sigs.k8s.io/cluster-api/feature"

	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
)

// What changes in place is no reason for a rollout, and is written to the Machines that there are.
func TestDesiredMachine_TakesOverWhatChangesInPlace(t *testing.T) {
	gate := clusterv1.MachineReadinessGate{ConditionType: "MyGate"}
	etcdGate := clusterv1.MachineReadinessGate{ConditionType: controlplanev1.MachineEtcdMemberHealthyCondition}
	taint := clusterv1.MachineTaint{Key: "a", Value: "b", Effect: corev1.TaintEffectNoSchedule, Propagation: clusterv1.MachineTaintPropagationAlways}
	cases := []struct {
		name   string
		change func(*controlplanev1.KThreesControlPlaneMachineTemplate)
		check  func(*testing.T, *clusterv1.Machine)
	}{
		{
			name: "labels and annotations",
			change: func(m *controlplanev1.KThreesControlPlaneMachineTemplate) {
				m.ObjectMeta.Labels = map[string]string{"a": "b"}
			},
			check: func(t *testing.T, m *clusterv1.Machine) { assert.Equal(t, "b", m.Labels["a"]) },
		},
		{
			name: "time-outs",
			change: func(m *controlplanev1.KThreesControlPlaneMachineTemplate) {
				m.Spec.Deletion.NodeDrainTimeoutSeconds = ptr.To[int32](1)
				m.Spec.Deletion.NodeVolumeDetachTimeoutSeconds = ptr.To[int32](2)
				m.Spec.Deletion.NodeDeletionTimeoutSeconds = ptr.To[int32](3)
			},
			check: func(t *testing.T, m *clusterv1.Machine) {
				assert.Equal(t, clusterv1.MachineDeletionSpec{
					NodeDrainTimeoutSeconds: ptr.To[int32](1), NodeVolumeDetachTimeoutSeconds: ptr.To[int32](2), NodeDeletionTimeoutSeconds: ptr.To[int32](3),
				}, m.Spec.Deletion)
			},
		},
		{
			name: "readiness gates, beside our own",
			change: func(m *controlplanev1.KThreesControlPlaneMachineTemplate) {
				m.Spec.ReadinessGates = []clusterv1.MachineReadinessGate{etcdGate, gate}
			},
			check: func(t *testing.T, m *clusterv1.Machine) {
				assert.Equal(t, []clusterv1.MachineReadinessGate{etcdGate, gate}, m.Spec.ReadinessGates)
			},
		},
		{
			name: "taints",
			change: func(m *controlplanev1.KThreesControlPlaneMachineTemplate) {
				m.Spec.Taints = []clusterv1.MachineTaint{taint}
			},
			check: func(t *testing.T, m *clusterv1.Machine) {
				assert.Equal(t, []clusterv1.MachineTaint{taint}, m.Spec.Taints)
			},
		},
	}
	require.NoError(t, feature.MutableGates.Set(string(feature.MachineTaintPropagation)+"=true"))
	t.Cleanup(func() { require.NoError(t, feature.MutableGates.Set(string(feature.MachineTaintPropagation)+"=false")) })
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			s := newScope(1)
			existing := s.machines["m0"]
			existing.OwnerReferences = []metav1.OwnerReference{ownerReference(s.controlPlane, true)}
			unchanged := desiredMachine(s, existing, identityOf(existing))
			existing.Labels, existing.Annotations, existing.Spec = unchanged.Labels, unchanged.Annotations, unchanged.Spec
			require.False(t, machineNeedsApply(existing, desiredMachine(s, existing, identityOf(existing))), "settled")

			tc.change(&s.controlPlane.Spec.MachineTemplate)
			desired := desiredMachine(s, existing, identityOf(existing))
			tc.check(t, desired)
			assert.True(t, machineNeedsApply(existing, desired), "it is written")
			assert.Empty(t, s.outdatedReasons(existing), "and rolls out nothing")
			assert.Equal(t, existing.Spec.Version, desired.Spec.Version)
			assert.Equal(t, existing.Spec.InfrastructureRef, desired.Spec.InfrastructureRef)
		})
	}
}

// Each reconcile would apply the Machines again otherwise.
func TestDesiredMachine_SaysWhatClusterAPIFillsIn(t *testing.T) {
	s := newScope(1)
	desired := desiredMachine(s, nil, identityOf(s.machines["m0"]))
	filledIn := desired.DeepCopy()
	require.NoError(t, (&admission.Machine{}).Default(context.Background(), filledIn))
	assert.Equal(t, desired, filledIn)
}

// What holds back a deletion until etcd has let go of the server has no place where there is no etcd.
func TestDesiredMachine_HasNothingOfEtcdWithAnExternalDatastore(t *testing.T) {
	s := newScope(1)
	existing := s.machines["m0"]
	desired := desiredMachine(s, nil, identityOf(existing))
	require.Contains(t, desired.Annotations, controlplanev1.PreTerminateHookAnnotation)
	require.NotEmpty(t, desired.Spec.ReadinessGates)

	s.controlPlane.Spec.KThreesConfigSpec.ServerConfig.Datastore.Endpoint = "postgres://db/k3s"
	desired = desiredMachine(s, nil, identityOf(existing))
	assert.NotContains(t, desired.Annotations, controlplanev1.PreTerminateHookAnnotation)
	assert.Empty(t, desired.Spec.ReadinessGates)
}

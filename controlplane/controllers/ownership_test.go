package controllers

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
	"github.com/capk3s/capk3s/test/testenv"
)

// standalone is a server's Machine that a human made.
func standalone(f *fixture, change ...func(*clusterv1.Machine)) *clusterv1.Machine {
	return testenv.Machine(f.cluster, "standalone", append([]func(*clusterv1.Machine){func(m *clusterv1.Machine) {
		m.Labels[clusterv1.MachineControlPlaneLabel] = ""
		m.Spec.Bootstrap.DataSecretName = ptr.To("data")
		m.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{
			APIGroup: f.controlPlane.Spec.MachineTemplate.Spec.InfrastructureRef.APIGroup, Kind: "GenericInfrastructureMachine", Name: "standalone",
		}
	}}, change...)...)
}

func TestReconcile_AdoptsAServerWithoutAController(t *testing.T) {
	cases := []struct {
		name   string
		change func(*clusterv1.Machine)
	}{
		{name: "with a KThreesConfig", change: func(*clusterv1.Machine) {}},
		{name: "with a human's bootstrap data", change: func(m *clusterv1.Machine) {
			m.Spec.Bootstrap.ConfigRef = clusterv1.ContractVersionedObjectReference{}
		}},
		{name: "one minor older", change: func(m *clusterv1.Machine) { m.Spec.Version = "v1.35.4+k3s1" }},
		{name: "of a control plane with another name", change: func(m *clusterv1.Machine) {
			m.Labels[clusterv1.MachineControlPlaneNameLabel] = "former"
		}},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			f := newFixture(t)
			machine := standalone(f, tc.change)
			env.Create(t, machine)
			f.run(t, 2)
			machines := f.listMachines(t)
			require.Len(t, machines, 1, "and no first server beside it")
			assert.True(t, metav1.IsControlledBy(&machines[0], f.controlPlane))
			assert.Equal(t, f.controlPlane.Name, machines[0].Labels[clusterv1.MachineControlPlaneNameLabel])
			assert.Contains(t, machines[0].Annotations, controlplanev1.PreTerminateHookAnnotation)
			assert.Equal(t, machine.Spec.Version, machines[0].Spec.Version)
			condition := conditions.Get(f.controlPlane, controlplanev1.TokenAvailableCondition)
			require.NotNil(t, condition)
			assert.Equal(t, controlplanev1.TokenLostReason, condition.Reason, "a cluster with a server gets no new token")
		})
	}
}

func TestReconcile_KeepsItsHandsOffMachinesThatCannotBeItsOwn(t *testing.T) {
	cases := []struct {
		name   string
		change func(*clusterv1.Machine)
		reason string
		says   string
	}{
		{
			name: "another controller has it", reason: controlplanev1.ForeignMachinesReason, says: "is controlled by KubeadmControlPlane other",
			change: func(m *clusterv1.Machine) {
				m.OwnerReferences = []metav1.OwnerReference{{
					APIVersion: "controlplane.cluster.x-k8s.io/v1beta2", Kind: "KubeadmControlPlane", Name: "other", UID: "other", Controller: ptr.To(true),
				}}
			},
		},
		{
			name: "another KThreesControlPlane has it", reason: controlplanev1.ForeignMachinesReason, says: "is controlled by KThreesControlPlane other",
			change: func(m *clusterv1.Machine) {
				m.OwnerReferences = []metav1.OwnerReference{{
					APIVersion: controlplanev1.GroupVersion.String(), Kind: "KThreesControlPlane", Name: "other", UID: "other", Controller: ptr.To(true),
				}}
			},
		},
		{
			name: "another bootstrap provider made its data", reason: controlplanev1.AdoptionFailedReason, says: "KubeadmConfig, not a KThreesConfig",
			change: func(m *clusterv1.Machine) { m.Spec.Bootstrap.ConfigRef.Kind = "KubeadmConfig" },
		},
		{
			name: "two minors older", reason: controlplanev1.AdoptionFailedReason, says: "more than one minor away",
			change: func(m *clusterv1.Machine) { m.Spec.Version = "v1.34.2+k3s1" },
		},
		{
			name: "no version", reason: controlplanev1.AdoptionFailedReason, says: "spec.version",
			change: func(m *clusterv1.Machine) { m.Spec.Version = "" },
		},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			f := newFixture(t)
			machine := standalone(f, tc.change)
			env.Create(t, machine)
			recorder := events.NewFakeRecorder(10)
			f.Recorder = recorder
			f.run(t, 3)
			assert.Len(t, recorder.Events, 1, "it is told once")
			condition := conditions.Get(f.controlPlane, controlplanev1.AvailableCondition)
			require.NotNil(t, condition)
			assert.Equal(t, tc.reason, condition.Reason)
			assert.Contains(t, condition.Message, tc.says)
			machines := f.listMachines(t)
			require.Len(t, machines, 1)
			assert.Equal(t, machine.ResourceVersion, machines[0].ResourceVersion, "the Machine is left alone")
			secrets := &corev1.SecretList{}
			require.NoError(t, env.Client.List(context.Background(), secrets, client.InNamespace(f.cluster.Namespace)))
			assert.Empty(t, secrets.Items)
		})
	}
}

func TestReconcile_TakesItsMachinesOverFromAnOlderLife(t *testing.T) {
	f := newFixture(t)
	f.run(t, 2)
	machine := f.listMachines(t)[0]
	before := machine.DeepCopy()
	human := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "human", UID: "human"}
	machine.OwnerReferences[0].UID = "older"
	machine.OwnerReferences[0].APIVersion = "controlplane.cluster.x-k8s.io/v1beta2"
	machine.OwnerReferences = append(machine.OwnerReferences, human)
	require.NoError(t, env.Client.Patch(context.Background(), &machine, client.MergeFrom(before)))

	f.run(t, 1)
	machines := f.listMachines(t)
	require.Len(t, machines, 1)
	assert.True(t, metav1.IsControlledBy(&machines[0], f.controlPlane))
	assert.Len(t, machines[0].OwnerReferences, 2)
	assert.Contains(t, machines[0].OwnerReferences, human)
}

func TestAdopt_AsksTheAPIServerWhetherTheControlPlaneStillIs(t *testing.T) {
	cases := []struct {
		name   string
		change func(*testing.T, *fixture)
	}{
		{name: "it is being deleted", change: func(t *testing.T, f *fixture) {
			require.NoError(t, env.Client.Delete(context.Background(), f.controlPlane.DeepCopy()))
		}},
		{name: "it was replaced", change: func(_ *testing.T, f *fixture) { f.controlPlane.UID = "older" }},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			f := newFixture(t)
			env.Create(t, standalone(f))
			s, err := f.readScope(context.Background(), f.cluster, f.controlPlane)
			require.NoError(t, err)
			require.Len(t, s.machines, 1)
			tc.change(t, f)
			assert.ErrorContains(t, f.adopt(context.Background(), s), "deleted or replaced")
		})
	}
}

func TestReconcile_ADeletingControlPlaneAdoptsNobody(t *testing.T) {
	f := newFixture(t)
	env.Create(t, standalone(f))
	require.NoError(t, env.Client.Delete(context.Background(), f.controlPlane))
	f.run(t, 2)
	machines := f.listMachines(t)
	require.Len(t, machines, 1, "a human's Machine isn't deleted")
	assert.Nil(t, metav1.GetControllerOf(&machines[0]))
}

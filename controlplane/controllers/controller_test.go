package controllers

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/test/builder"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
	"github.com/capk3s/capk3s/test/testenv"
)

func TestReconcile_FoundsTheClusterWithOneServer(t *testing.T) {
	f := newFixture(t, func(cp *controlplanev1.KThreesControlPlane) { cp.Spec.Replicas = ptr.To[int32](3) })

	f.run(t, 1)
	machines := f.listMachines(t)
	require.Len(t, machines, 1, "the first server comes alone")
	machine := machines[0]
	assert.Contains(t, machine.Annotations, controlplanev1.PreTerminateHookAnnotation, "the hook is there from the start")
	assert.True(t, metav1.IsControlledBy(&machine, f.controlPlane))
	config := &bootstrapv1.KThreesConfig{}
	require.NoError(t, env.Client.Get(context.Background(), client.ObjectKeyFromObject(&machine), config))
	assert.NotContains(t, config.Annotations, bootstrapv1.OrderAnnotation, "the order comes after the evidence")
	assert.Nil(t, metav1.GetControllerOf(config), "Cluster API's Machine controller becomes the controller")
	assert.NotContains(t, f.controlPlane.Annotations, controlplanev1.InitializedAnnotation)

	f.run(t, 1)
	require.NotEmpty(t, f.controlPlane.Annotations[controlplanev1.InitializedAnnotation])
	recorded := recordedEvidence(f.controlPlane)
	require.NotNil(t, recorded)
	assert.Equal(t, machine.Name, recorded.Machine)
	assert.NotEmpty(t, recorded.Certificates)
	env.Refresh(t, config)
	assert.Equal(t, bootstrapv1.OrderInit, config.Annotations[bootstrapv1.OrderAnnotation])

	f.run(t, 3)
	assert.Len(t, f.listMachines(t), 1, "no second server before the first one answers")
	assert.True(t, conditions.IsTrue(f.controlPlane, controlplanev1.TokenAvailableCondition))
	assert.True(t, conditions.IsTrue(f.controlPlane, controlplanev1.CertificatesAvailableCondition))
	assert.True(t, conditions.IsFalse(f.controlPlane, controlplanev1.AvailableCondition))
	assert.Equal(t, f.controlPlane.Generation, f.controlPlane.Status.ObservedGeneration)
	assert.Equal(t, testenv.Version, f.controlPlane.Status.Version)
}

func TestReconcile_WritesNothingWhenNothingChanged(t *testing.T) {
	f := newFixture(t)
	f.run(t, 4)
	f.counter.Reset()
	f.run(t, 2)
	assert.Empty(t, f.counter.Writes())
}

func TestReconcile_NeverFoundsASecondCluster(t *testing.T) {
	f := newFixture(t)
	f.run(t, 2)
	for _, machine := range f.listMachines(t) {
		require.NoError(t, env.Client.Delete(context.Background(), &machine))
	}
	f.run(t, 2)
	require.Empty(t, f.listMachines(t), "evidence and no Machines: wait for a human")
	condition := conditions.Get(f.controlPlane, controlplanev1.ScalingUpCondition)
	require.NotNil(t, condition)
	assert.Contains(t, condition.Message, controlplanev1.AllowInitAnnotation)

	// Without its status, as after a restore, it is no other.
	before := f.controlPlane.DeepCopy()
	f.controlPlane.Status = controlplanev1.KThreesControlPlaneStatus{}
	require.NoError(t, env.Client.Status().Patch(context.Background(), f.controlPlane, client.MergeFrom(before)))
	f.run(t, 2)
	require.Empty(t, f.listMachines(t))

	before = f.controlPlane.DeepCopy()
	f.controlPlane.Annotations[controlplanev1.AllowInitAnnotation] = "true"
	require.NoError(t, env.Client.Patch(context.Background(), f.controlPlane, client.MergeFrom(before)))
	f.run(t, 2)
	require.Len(t, f.listMachines(t), 1, "a human's word counts")
	config := &bootstrapv1.KThreesConfig{}
	require.NoError(t, env.Client.Get(context.Background(), client.ObjectKey{Namespace: f.cluster.Namespace, Name: f.listMachines(t)[0].Name}, config))
	assert.Equal(t, bootstrapv1.OrderInitAnew, config.Annotations[bootstrapv1.OrderAnnotation])
	assert.NotContains(t, f.controlPlane.Annotations, controlplanev1.AllowInitAnnotation, "once")
}

func TestCreateMachine_BelievesThatThereIsNoServerOnlyFromTheAPIServer(t *testing.T) {
	f := newFixture(t)
	f.run(t, 1)
	require.Len(t, f.listMachines(t), 1)
	s, err := f.readScope(context.Background(), f.cluster, f.controlPlane)
	require.NoError(t, err)
	s.machines = nil // as a cache has it that lags behind
	require.NoError(t, f.createMachine(context.Background(), s, &creation{first: true}))
	assert.Len(t, f.listMachines(t), 1)
}

func TestReconcile_PropagatesMetadataInPlace(t *testing.T) {
	f := newFixture(t, func(cp *controlplanev1.KThreesControlPlane) {
		cp.Spec.MachineTemplate.ObjectMeta = clusterv1.ObjectMeta{
			Labels: map[string]string{"team": "a", "old": "1"}, Annotations: map[string]string{"note": "x", "gone": "1"},
		}
	})
	f.run(t, 2)
	name := f.listMachines(t)[0].Name

	before := f.controlPlane.DeepCopy()
	f.controlPlane.Spec.MachineTemplate.ObjectMeta = clusterv1.ObjectMeta{
		Labels: map[string]string{"team": "b"}, Annotations: map[string]string{"note": "y"},
	}
	f.controlPlane.Spec.MachineTemplate.Spec.Deletion.NodeDrainTimeoutSeconds = ptr.To[int32](30)
	require.NoError(t, env.Client.Patch(context.Background(), f.controlPlane, client.MergeFrom(before)))
	f.run(t, 2)

	machines := f.listMachines(t)
	require.Len(t, machines, 1)
	require.Equal(t, name, machines[0].Name, "no rollout")
	assert.Equal(t, ptr.To[int32](30), machines[0].Spec.Deletion.NodeDrainTimeoutSeconds)
	config := &bootstrapv1.KThreesConfig{ObjectMeta: metav1.ObjectMeta{Namespace: f.cluster.Namespace, Name: name}}
	env.Refresh(t, config)
	for _, object := range []client.Object{&machines[0], config, f.infraMachine(t, name)} {
		assert.Equal(t, "b", object.GetLabels()["team"], "%T", object)
		assert.NotContains(t, object.GetLabels(), "old", "%T", object)
		assert.Equal(t, "y", object.GetAnnotations()["note"], "%T", object)
		assert.NotContains(t, object.GetAnnotations(), "gone", "%T", object)
	}
	assert.Equal(t, bootstrapv1.OrderInit, config.Annotations[bootstrapv1.OrderAnnotation])
}

func TestReconcile_OwnsItsMachinesAgainAfterARestore(t *testing.T) {
	f := newFixture(t)
	f.run(t, 2)
	machine := f.listMachines(t)[0]
	before := machine.DeepCopy()
	machine.OwnerReferences = nil
	require.NoError(t, env.Client.Patch(context.Background(), &machine, client.MergeFrom(before)))
	f.run(t, 1)
	machines := f.listMachines(t)
	require.Len(t, machines, 1)
	assert.True(t, metav1.IsControlledBy(&machines[0], f.controlPlane))
}

func TestReconcile_DeletesOnlyItsOwnStrays(t *testing.T) {
	f := newFixture(t)
	f.run(t, 2)
	s := &scope{cluster: f.cluster, controlPlane: f.controlPlane}
	stray := func(name string, owners ...metav1.OwnerReference) *bootstrapv1.KThreesConfig {
		return &bootstrapv1.KThreesConfig{ObjectMeta: metav1.ObjectMeta{
			Namespace: f.cluster.Namespace, Name: name, Labels: ownLabels(s), OwnerReferences: owners,
		}}
	}
	staleOwner := ownerReference(f.controlPlane, false)
	staleOwner.UID = "stale"
	ours, restored, stale := stray("ours", ownerReference(f.controlPlane, false)), stray("restored"), stray("stale", staleOwner)
	env.Create(t, ours, restored, stale)

	f.run(t, 1)
	assert.True(t, apierrors.IsNotFound(env.Client.Get(context.Background(), client.ObjectKeyFromObject(ours), ours)))
	assert.NoError(t, env.Client.Get(context.Background(), client.ObjectKeyFromObject(restored), restored), "its Machine may still be restored")
	assert.NoError(t, env.Client.Get(context.Background(), client.ObjectKeyFromObject(stale), stale))
}

func TestReconcile_WritesNothingForAForeignCluster(t *testing.T) {
	f := newFixture(t)
	before := f.cluster.DeepCopy()
	f.cluster.Spec.ControlPlaneRef.Name = "another"
	require.NoError(t, env.Client.Patch(context.Background(), f.cluster, client.MergeFrom(before)))
	f.run(t, 2)
	assert.Empty(t, f.listMachines(t))
	secrets := &corev1.SecretList{}
	require.NoError(t, env.Client.List(context.Background(), secrets, client.InNamespace(f.cluster.Namespace)))
	assert.Empty(t, secrets.Items)
	condition := conditions.Get(f.controlPlane, controlplanev1.AvailableCondition)
	require.NotNil(t, condition)
	assert.Equal(t, controlplanev1.ForeignClusterReason, condition.Reason)
}

func TestReconcile_DoesNothingWhilePaused(t *testing.T) {
	f := newFixture(t)
	before := f.cluster.DeepCopy()
	f.cluster.Spec.Paused = ptr.To(true)
	require.NoError(t, env.Client.Patch(context.Background(), f.cluster, client.MergeFrom(before)))
	f.run(t, 3)
	assert.Empty(t, f.listMachines(t))
	assert.True(t, conditions.IsTrue(f.controlPlane, clusterv1.PausedCondition))
}

func TestReconcile_DeletionAlwaysEnds(t *testing.T) {
	cases := []struct {
		name   string
		change func(*testing.T, *fixture)
	}{
		{name: "no Machine was ever made"},
		{name: "a server", change: func(t *testing.T, f *fixture) { f.run(t, 2) }},
		{name: "infrastructure not provisioned", change: func(t *testing.T, f *fixture) {
			before := f.cluster.DeepCopy()
			f.cluster.Status.Initialization.InfrastructureProvisioned = nil
			require.NoError(t, env.Client.Status().Patch(context.Background(), f.cluster, client.MergeFrom(before)))
		}},
		{name: "infrastructure template missing", change: func(t *testing.T, f *fixture) {
			f.run(t, 2)
			require.NoError(t, env.Client.Delete(context.Background(), builder.InfrastructureMachineTemplate(f.cluster.Namespace, "t1").Build()))
		}},
		{name: "infrastructure machine missing", change: func(t *testing.T, f *fixture) {
			f.run(t, 2)
			require.NoError(t, env.Client.Delete(context.Background(), f.infraMachine(t, f.listMachines(t)[0].Name)))
		}},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			f := newFixture(t)
			if tc.change != nil {
				tc.change(t, f)
			}
			require.NoError(t, env.Client.Delete(context.Background(), f.controlPlane))
			f.run(t, 3)
			assert.Empty(t, f.listMachines(t))
			err := env.Client.Get(context.Background(), client.ObjectKeyFromObject(f.controlPlane), f.controlPlane)
			assert.True(t, apierrors.IsNotFound(err), "the control plane is gone")
		})
	}
}

func TestReconcile_DeletesServersAfterWorkers(t *testing.T) {
	f := newFixture(t)
	f.run(t, 2)
	worker := testenv.Machine(f.cluster, "worker")
	env.Create(t, worker)
	require.NoError(t, env.Client.Delete(context.Background(), f.controlPlane))

	f.run(t, 2)
	condition := conditions.Get(f.controlPlane, controlplanev1.DeletingCondition)
	require.NotNil(t, condition)
	assert.Equal(t, controlplanev1.WaitingForWorkersDeletionReason, condition.Reason)
	assert.Contains(t, condition.Message, "worker")
	assert.Len(t, f.listMachines(t), 2)

	require.NoError(t, env.Client.Delete(context.Background(), worker))
	f.run(t, 3)
	assert.Empty(t, f.listMachines(t))
}

func TestReconcile_LetsDeletingServersGoWithTheControlPlane(t *testing.T) {
	f := newFixture(t)
	f.run(t, 2)
	machine := f.listMachines(t)[0]
	before := machine.DeepCopy()
	machine.Finalizers = []string{"test/held"}
	require.NoError(t, env.Client.Patch(context.Background(), &machine, client.MergeFrom(before)))
	require.NoError(t, env.Client.Delete(context.Background(), f.controlPlane))
	f.run(t, 2)
	machines := f.listMachines(t)
	require.Len(t, machines, 1)
	assert.NotContains(t, machines[0].Annotations, controlplanev1.PreTerminateHookAnnotation, "nothing waits for etcd")
}

func TestOwnInfrastructureTemplate_MakesTheClusterAnOwner(t *testing.T) {
	f := newFixture(t)
	f.run(t, 1)
	template := &unstructured.Unstructured{}
	template.SetAPIVersion(builder.InfrastructureGroupVersion.String())
	template.SetKind(builder.GenericInfrastructureMachineTemplateKind)
	require.NoError(t, env.Client.Get(context.Background(), client.ObjectKey{Namespace: f.cluster.Namespace, Name: "t1"}, template))
	require.Len(t, template.GetOwnerReferences(), 1)
	assert.Equal(t, f.cluster.UID, template.GetOwnerReferences()[0].UID)
}

// B8: a workload cluster that doesn't answer is normal.
func TestReconcile_UnreachableWorkloadIsNoError(t *testing.T) {
	f := newFixture(t)
	f.run(t, 2)
	for _, initialized := range []bool{false, true} {
		if initialized {
			before := f.controlPlane.DeepCopy()
			f.controlPlane.Status.Initialization.ControlPlaneInitialized = ptr.To(true)
			require.NoError(t, env.Client.Status().Patch(context.Background(), f.controlPlane, client.MergeFrom(before)))
		}
		result, err := f.Reconcile(context.Background(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(f.controlPlane)})
		require.NoError(t, err)
		assert.NotZero(t, result.RequeueAfter)
		assert.LessOrEqual(t, result.RequeueAfter, 20*time.Second)
	}
	f.run(t, 1)
	assert.True(t, conditions.IsUnknown(f.controlPlane, controlplanev1.AvailableCondition), "once initialized, silence is not a no")
	assert.True(t, ptr.Deref(f.controlPlane.Status.Initialization.ControlPlaneInitialized, false), "and never taken back")
}

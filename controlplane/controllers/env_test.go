package controllers

import (
	"context"
	"testing"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	capicontrollerutil "sigs.k8s.io/cluster-api/util/controller"
	"sigs.k8s.io/cluster-api/util/test/builder"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
	"github.com/capk3s/capk3s/test/testenv"
)

var env *testenv.Env

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	testenv.Main(m, &env, testenv.WithCRDs(
		withContract(builder.GenericInfrastructureMachineCRD),
		withContract(builder.GenericInfrastructureMachineTemplateCRD),
	))
}

func withContract(crd *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinition {
	crd = crd.DeepCopy()
	metav1.SetMetaDataLabel(&crd.ObjectMeta, "cluster.x-k8s.io/v1beta2", crd.Spec.Versions[0].Name)
	return crd
}

// fixture is a cluster without a workload, and a reconciler for its control plane.
type fixture struct {
	*Reconciler
	counter      *testenv.Counter
	cluster      *clusterv1.Cluster
	controlPlane *controlplanev1.KThreesControlPlane
}

// newFixture creates a Cluster with provisioned infrastructure, an endpoint where nobody listens, a template and a
// control plane.
func newFixture(t *testing.T, change ...func(*controlplanev1.KThreesControlPlane)) *fixture {
	t.Helper()
	ctx := context.Background()
	namespace := env.Namespace(t)
	cluster := testenv.Cluster(namespace, "c1", func(c *clusterv1.Cluster) {
		c.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: "127.0.0.1", Port: 1}
	})
	env.Create(t, cluster)
	before := cluster.DeepCopy()
	cluster.Status.Initialization.InfrastructureProvisioned = ptr.To(true)
	require.NoError(t, env.Client.Status().Patch(ctx, cluster, client.MergeFrom(before)))

	template := builder.InfrastructureMachineTemplate(namespace, "t1").Build()
	env.Create(t, template)

	controlPlane := testenv.ControlPlane(cluster, append([]func(*controlplanev1.KThreesControlPlane){func(cp *controlplanev1.KThreesControlPlane) {
		cp.Finalizers = []string{controlplanev1.Finalizer}
		cp.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: cluster.Name, UID: cluster.UID,
		}}
		cp.Spec.MachineTemplate.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{
			APIGroup: builder.InfrastructureGroupVersion.Group, Kind: builder.GenericInfrastructureMachineTemplateKind, Name: "t1",
		}
	}}, change...)...)
	env.Create(t, controlPlane)

	counting, counter := testenv.Count(env.Client)
	f := &fixture{
		counter: counter, cluster: cluster, controlPlane: controlPlane,
		Reconciler: &Reconciler{
			Client:         counting,
			APIReader:      env.Client,
			ClusterCache:   clustercache.NewFakeEmptyClusterCache(),
			Recorder:       events.NewFakeRecorder(1000),
			controller:     capicontrollerutil.NewFakeController(),
			machineDeleter: capicontrollerutil.NewClientWithDeleteResponseFromClient(env.Client),
		},
	}
	// The first pass only sets the Paused condition.
	f.run(t, 1)
	return f
}

// run runs the reconciler so many times and reads the control plane anew.
func (f *fixture) run(t *testing.T, times int) {
	t.Helper()
	for range times {
		_, err := f.Reconcile(context.Background(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(f.controlPlane)})
		require.NoError(t, err)
	}
	require.NoError(t, client.IgnoreNotFound(env.Client.Get(context.Background(), client.ObjectKeyFromObject(f.controlPlane), f.controlPlane)))
}

// machines lists the Machines of the control plane.
func (f *fixture) listMachines(t *testing.T) []clusterv1.Machine {
	t.Helper()
	list := &clusterv1.MachineList{}
	require.NoError(t, env.Client.List(context.Background(), list, client.InNamespace(f.cluster.Namespace)))
	return list.Items
}

// infraMachine reads the infrastructure machine of that name.
func (f *fixture) infraMachine(t *testing.T, name string) *unstructured.Unstructured {
	t.Helper()
	infra := &unstructured.Unstructured{}
	infra.SetAPIVersion(builder.InfrastructureGroupVersion.String())
	infra.SetKind(builder.GenericInfrastructureMachineKind)
	require.NoError(t, env.Client.Get(context.Background(), client.ObjectKey{Namespace: f.cluster.Namespace, Name: name}, infra))
	return infra
}

// tokenValue is the cluster's token.
func (f *fixture) tokenValue(t *testing.T) string {
	t.Helper()
	secret := &corev1.Secret{}
	require.NoError(t, env.Client.Get(context.Background(), client.ObjectKey{Namespace: f.cluster.Namespace, Name: f.cluster.Name + "-token"}, secret))
	require.NotEmpty(t, secret.Data["value"])
	return string(secret.Data["value"])
}

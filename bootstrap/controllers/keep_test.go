package controllers

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
	"github.com/capk3s/capk3s/test/testenv"
)

// used is a worker's config whose Machine has taken the bootstrap data, as Cluster API does.
func (w *world) used(name, order string) *bootstrapv1.KThreesConfig {
	w.t.Helper()
	config := w.machine(name, order)
	w.mustReconcile(config)
	w.requireData(config)
	w.take(config)
	w.mustReconcile(config)
	w.events()
	w.counter.Reset()
	return config
}

func (w *world) take(config *bootstrapv1.KThreesConfig) {
	w.t.Helper()
	machine := w.machineOf(config)
	w.update(machine, func() { machine.Spec.Bootstrap.DataSecretName = ptr.To(config.Name) })
}

func (w *world) machineOf(config *bootstrapv1.KThreesConfig) *clusterv1.Machine {
	w.t.Helper()
	machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: config.Namespace, Name: config.Name}}
	env.Refresh(w.t, machine)
	return machine
}

func (w *world) loseStatus(config *bootstrapv1.KThreesConfig) {
	w.t.Helper()
	w.updateStatus(config, func() { config.Status = bootstrapv1.KThreesConfigStatus{} })
}

func (w *world) deleteSecret(config *bootstrapv1.KThreesConfig) {
	w.t.Helper()
	require.NoError(w.t, env.Client.Delete(ctx, w.secret(config)))
}

func TestReconcile_NothingToDoWritesNothing(t *testing.T) {
	w := newWorld(t).complete().initialize()
	config := w.used("m", "worker")
	for range 3 {
		w.mustReconcile(config)
	}
	require.Empty(t, w.counter.Writes())
	require.Empty(t, w.events())
}

func TestReconcile_SpecChangesAfterwardsDontChangeTheData(t *testing.T) {
	w := newWorld(t).complete().initialize()
	config := w.used("m", "worker")
	before := w.secret(config)
	w.update(config, func() { config.Spec.PreK3sCommands = []string{"late"} })
	w.mustReconcile(config)
	require.Equal(t, before.ResourceVersion, w.secret(config).ResourceVersion)
	require.Equal(t, config.Generation, config.Status.ObservedGeneration)
}

func TestReconcile_StatusIsRebuiltAfterAMove(t *testing.T) {
	w := newWorld(t).complete().initialize()
	config := w.used("m", "worker")
	before := w.secret(config)
	w.loseStatus(config)
	w.mustReconcile(config)
	w.mustReconcile(config)
	w.requireData(config)
	require.Equal(t, before.ResourceVersion, w.secret(config).ResourceVersion)
}

// A restore in which the cluster's status is gone as well must not keep the config from having its status back.
func TestReconcile_StatusIsRebuiltBeforeAnythingElseIsThere(t *testing.T) {
	w := newWorld(t).complete().initialize()
	config := w.used("m", "worker")
	w.loseStatus(config)
	w.updateStatus(w.cluster, func() { w.cluster.Status = clusterv1.ClusterStatus{} })
	require.NoError(t, env.Client.Delete(ctx, w.readSecret("c-token")))
	w.mustReconcile(config)
	w.mustReconcile(config)
	w.requireData(config)
}

func TestReconcile_OwnerReferenceIsPutRight(t *testing.T) {
	stale := func(config *bootstrapv1.KThreesConfig) metav1.OwnerReference {
		ref := *metav1.NewControllerRef(config, bootstrapv1.GroupVersion.WithKind("KThreesConfig"))
		ref.UID = types.UID("stale")
		return ref
	}
	human := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "human", UID: "human"}
	tests := map[string]struct {
		refs func(*bootstrapv1.KThreesConfig) []metav1.OwnerReference
		kept []metav1.OwnerReference
	}{
		"none":      {func(*bootstrapv1.KThreesConfig) []metav1.OwnerReference { return nil }, nil},
		"stale UID": {func(c *bootstrapv1.KThreesConfig) []metav1.OwnerReference { return []metav1.OwnerReference{stale(c)} }, nil},
		"another version": {func(c *bootstrapv1.KThreesConfig) []metav1.OwnerReference {
			ref := stale(c)
			ref.UID, ref.APIVersion = c.UID, "bootstrap.cluster.x-k8s.io/v1beta2"
			return []metav1.OwnerReference{ref}
		}, nil},
		"somebody's besides": {func(c *bootstrapv1.KThreesConfig) []metav1.OwnerReference {
			return []metav1.OwnerReference{human, stale(c)}
		}, []metav1.OwnerReference{human}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t).complete().initialize()
			config := w.used("m", "worker")
			secret := w.secret(config)
			data := secret.Data
			w.update(secret, func() { secret.OwnerReferences = tt.refs(config) })

			w.mustReconcile(config)

			secret = w.secret(config)
			ours := *metav1.NewControllerRef(config, bootstrapv1.GroupVersion.WithKind("KThreesConfig"))
			require.Equal(t, append(tt.kept, ours), secret.OwnerReferences)
			require.Equal(t, data, secret.Data)
			require.Len(t, w.counter.Writes(), 1)
			w.mustReconcile(config)
			require.Len(t, w.counter.Writes(), 1)
		})
	}
}

func TestReconcile_ForeignSecretIsLeftAsItIs(t *testing.T) {
	other := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "other", UID: "other", Controller: ptr.To(true)}
	tests := map[string]func(*corev1.Secret){
		"another type":      func(s *corev1.Secret) { s.Type = corev1.SecretTypeOpaque },
		"no label":          func(s *corev1.Secret) { s.Labels = nil },
		"another cluster":   func(s *corev1.Secret) { s.Labels[clusterv1.ClusterNameLabel] = "other" },
		"no owner, no mark": func(*corev1.Secret) {},
		"another controller": func(s *corev1.Secret) {
			s.OwnerReferences = []metav1.OwnerReference{other}
			s.Labels[dataLabel] = ""
		},
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t).complete().initialize()
			secret := testenv.Secret(w.cluster, "m", map[string]string{"value": "foreign"}, change)
			env.Create(t, secret)
			config := w.machine("m", "worker")
			w.mustReconcile(config)
			w.mustReconcile(config)
			require.Equal(t, bootstrapv1.ForeignSecretReason, conditions.GetReason(config, bootstrapv1.DataSecretAvailableCondition))
			require.Empty(t, config.Status.DataSecretName)
			require.Contains(t, strings.Join(w.events(), "\n"), "Warning ForeignSecret Secret m isn't bootstrap data")
			require.Equal(t, secret.ResourceVersion, w.secret(config).ResourceVersion)

			require.NoError(t, env.Client.Delete(ctx, secret))
			w.mustReconcile(config)
			w.requireData(config)
		})
	}
}

// A crash between the Secret and the status.
func TestReconcile_SecretThatNobodyUsedYetIsBroughtUpToDate(t *testing.T) {
	w := newWorld(t).complete().initialize()
	config := w.machine("m", "worker")
	w.mustReconcile(config)
	before := w.secret(config)
	w.loseStatus(config)
	w.counter.Reset()
	w.mustReconcile(config)
	w.mustReconcile(config)
	w.requireData(config)
	require.Equal(t, before.ResourceVersion, w.secret(config).ResourceVersion, "the same data aren't written again")

	w.loseStatus(config)
	w.update(config, func() { config.Spec.PreK3sCommands = []string{"new"} })
	w.mustReconcile(config)
	w.mustReconcile(config)
	require.Equal(t, "new", w.requireData(config).files["/run/cluster-api/k3s/preK3sCommands/000"])
	require.Equal(t, before.UID, w.secret(config).UID)
}

func TestReconcile_LostDataAreNotMadeAgain(t *testing.T) {
	w := newWorld(t).complete().initialize()
	config := w.used("m", "worker")
	w.deleteSecret(config)
	w.mustReconcile(config)
	require.Equal(t, bootstrapv1.DataSecretLostReason, conditions.GetReason(config, bootstrapv1.DataSecretAvailableCondition))
	require.Contains(t, conditions.GetMessage(config, bootstrapv1.ReadyCondition), "Delete the Machine")
	require.Nil(t, w.secret(config))

	machine := w.machineOf(config)
	w.updateStatus(machine, func() { machine.Status.NodeRef = clusterv1.MachineNodeReference{Name: "n"} })
	w.mustReconcile(config)
	require.True(t, conditions.IsTrue(config, bootstrapv1.ReadyCondition), "a node doesn't need them any more")
	require.Nil(t, w.secret(config))
}

func TestReconcile_LostDataThatNobodyTookAreMadeAgain(t *testing.T) {
	w := newWorld(t).complete().initialize()
	config := w.machine("m", "worker")
	w.mustReconcile(config)
	w.deleteSecret(config)
	w.mustReconcile(config)
	w.requireData(config)
}

// The cache may not know yet that the Machine took its data.
func TestReconcile_AsksTheServerBeforeItWrites(t *testing.T) {
	w := newWorld(t).complete().initialize()
	config := w.machine("m", "worker")
	w.r.APIReader = changingReader{env.Client, func() { w.take(config) }}
	_, err := w.reconcile(config)
	require.NoError(t, err)
	require.Nil(t, w.secret(config))
}

// changingReader changes a Machine right before it is read.
type changingReader struct {
	client.Reader
	change func()
}

// Get changes the world first, if a Machine is asked for.
func (s changingReader) Get(c context.Context, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
	if _, ok := object.(*clusterv1.Machine); ok {
		s.change()
	}
	return s.Reader.Get(c, key, object, opts...)
}

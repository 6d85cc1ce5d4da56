package custody_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
	"github.com/capk3s/capk3s/pkg/custody"
	"github.com/capk3s/capk3s/test/testenv"
)

var env *testenv.Env

func TestMain(m *testing.M) { testenv.Main(m, &env) }

type fixture struct {
	*custody.Keeper
	requests *testenv.Counter
	live     *testenv.Counter
	recorder *events.FakeRecorder
	now      time.Time
}

func newFixture(t *testing.T) *fixture {
	cluster := testenv.Cluster(env.Namespace(t), "c")
	env.Create(t, cluster)
	controlPlane := testenv.ControlPlane(cluster)
	env.Create(t, controlPlane)
	f := &fixture{recorder: events.NewFakeRecorder(100), now: time.Now().Truncate(time.Second)}
	f.Keeper = &custody.Keeper{
		Recorder: f.recorder, Cluster: cluster, ControlPlane: controlPlane, Now: func() time.Time { return f.now },
	}
	var live client.WithWatch
	f.Client, f.requests = testenv.Count(env.Client)
	live, f.live = testenv.Count(env.Client)
	f.APIReader = live
	return f
}

func (f *fixture) secret(t *testing.T, change ...func(*corev1.Secret)) *corev1.Secret {
	secret := testenv.Secret(f.Cluster, "s", map[string]string{"key": "data"}, change...)
	env.Create(t, secret)
	return secret
}

func (f *fixture) read(t *testing.T) *corev1.Secret {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: f.Cluster.Namespace, Name: "s"}}
	env.Refresh(t, secret)
	return secret
}

func foreignController(secret *corev1.Secret) {
	secret.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "external-secrets.io/v1", Kind: "ExternalSecret", Name: "es", UID: "es-uid", Controller: ptr.To(true),
	}}
}

func TestKeep_PatchesMetadataOnceAndThenNothing(t *testing.T) {
	f := newFixture(t)
	secret := f.secret(t, func(s *corev1.Secret) { s.Labels = map[string]string{"team": "a"} })

	kept, err := f.Keep(context.Background(), secret)
	require.NoError(t, err)
	require.Len(t, f.requests.Writes(), 1)
	require.Equal(t, []metav1.OwnerReference{custody.Reference(f.ControlPlane)}, kept.OwnerReferences)
	require.Equal(t, map[string]string{
		"team": "a", "cluster.x-k8s.io/cluster-name": "c", "clusterctl.cluster.x-k8s.io/move": "",
	}, f.read(t).Labels)
	require.Equal(t, []byte("data"), f.read(t).Data["key"])

	_, err = f.Keep(context.Background(), kept)
	require.NoError(t, err)
	require.Len(t, f.requests.Writes(), 1)
	require.Empty(t, f.live.Calls())
}

func TestKeep_OnlyLabelsASecretOfAnotherType(t *testing.T) {
	f := newFixture(t)
	secret := f.secret(t, foreignController, func(s *corev1.Secret) { s.Type = corev1.SecretTypeOpaque; s.Labels = nil })

	_, err := f.Keep(context.Background(), secret)
	require.NoError(t, err)
	require.Equal(t, secret.OwnerReferences, f.read(t).OwnerReferences)
	require.Equal(t, "c", f.read(t).Labels[clusterv1.ClusterNameLabel])
	require.Contains(t, f.read(t).Labels, "clusterctl.cluster.x-k8s.io/move")
}

func TestKeep_LeavesTheSecretOfAnotherCluster(t *testing.T) {
	f := newFixture(t)
	secret := f.secret(t, func(s *corev1.Secret) { s.Labels[clusterv1.ClusterNameLabel] = "other" })

	_, err := f.Keep(context.Background(), secret)
	var reason *custody.Error
	require.ErrorAs(t, err, &reason)
	require.Equal(t, controlplanev1.ForeignSecretReason, reason.Reason)
	require.Empty(t, f.requests.Writes())
}

func TestKeep_PlansAnewAfterAConflict(t *testing.T) {
	f := newFixture(t)
	secret := f.secret(t)
	human := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "notes", UID: "u1"}
	f.Client = testenv.Before(f.Client.(client.WithWatch), testenv.Patch, 1, func(testenv.Call) error {
		other := f.read(t)
		other.OwnerReferences = append(other.OwnerReferences, human)
		return env.Client.Update(context.Background(), other)
	})

	_, err := f.Keep(context.Background(), secret)
	require.NoError(t, err)
	require.Equal(t, []metav1.OwnerReference{human, custody.Reference(f.ControlPlane)}, f.read(t).OwnerReferences)
}

func TestKeep_WritesNothingWhenTheStaleCacheIsBehindItsOwnPatch(t *testing.T) {
	f := newFixture(t)
	stale := f.secret(t)
	_, err := f.Keep(context.Background(), stale.DeepCopy())
	require.NoError(t, err)
	version := f.read(t).ResourceVersion

	_, err = f.Keep(context.Background(), stale)
	require.NoError(t, err)
	require.Equal(t, version, f.read(t).ResourceVersion)
}

// A foreign controller that takes the Secret back, with or without our annotation.
func TestKeep_WritesAtMostOnceInTenMinutesAgainstAnotherController(t *testing.T) {
	for name, takeBack := range map[string]func(*corev1.Secret){
		"that keeps our annotation":      func(*corev1.Secret) {},
		"that drops all it doesn't know": func(s *corev1.Secret) { s.Annotations, s.Labels = nil, nil },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			secret := f.secret(t, foreignController)
			ctx := context.Background()

			_, err := f.Keep(ctx, secret)
			require.NoError(t, err)
			require.Contains(t, <-f.recorder.Events, "instead of ExternalSecret es")
			require.True(t, metav1.IsControlledBy(f.read(t), f.ControlPlane))

			for range 5 {
				secret = f.read(t)
				takeBack(secret)
				foreignController(secret)
				require.NoError(t, env.Client.Update(ctx, secret))
				f.now = f.now.Add(time.Minute)

				kept, err := f.Keep(ctx, secret)
				contested := custody.IsContested(err)
				require.NotNil(t, contested)
				require.Equal(t, "ExternalSecret es", contested.By)
				require.Equal(t, secret.Name, kept.Name)
				require.InDelta(t, 10*time.Minute, contested.RetryAfter, float64(5*time.Minute))
			}
			require.Len(t, f.requests.Writes(), 1)

			f.now = f.now.Add(10 * time.Minute)
			_, err = f.Keep(ctx, f.read(t))
			require.NoError(t, err)
			require.Len(t, f.requests.Writes(), 2)
			require.True(t, metav1.IsControlledBy(f.read(t), f.ControlPlane))
		})
	}
}

func TestGet_AsksTheAPIServerBeforeItBelievesAbsence(t *testing.T) {
	f := newFixture(t)
	secret, err := f.Get(context.Background(), "s")
	require.NoError(t, err)
	require.Nil(t, secret)
	require.Len(t, f.live.Reads(), 1)

	f.secret(t)
	secret, err = f.Get(context.Background(), "s")
	require.NoError(t, err)
	require.NotNil(t, secret)
	require.Len(t, f.live.Reads(), 1)
}

func TestMayGenerate(t *testing.T) {
	for name, tc := range map[string]struct {
		arrange func(t *testing.T, f *fixture)
		why     string
	}{
		"a new cluster": {func(*testing.T, *fixture) {}, ""},
		"evidence": {func(t *testing.T, f *fixture) {
			f.annotate(t, controlplanev1.InitializedAnnotation, "{}")
		}, "founded before"},
		"evidence that a human set aside": {func(t *testing.T, f *fixture) {
			f.annotate(t, controlplanev1.InitializedAnnotation, "{}")
			f.annotate(t, controlplanev1.AllowInitAnnotation, "true")
		}, ""},
		"paused": {func(t *testing.T, f *fixture) {
			f.annotate(t, clusterv1.PausedAnnotation, "")
		}, "paused"},
		"control plane initialized": {func(t *testing.T, f *fixture) {
			f.Cluster.Status.Initialization.ControlPlaneInitialized = ptr.To(true)
			require.NoError(t, env.Client.Status().Update(context.Background(), f.Cluster))
			f.Cluster.Status = clusterv1.ClusterStatus{}
		}, "founded before"},
		"another control plane of that name": {func(_ *testing.T, f *fixture) { f.ControlPlane.UID = "dead" }, "created anew"},
		"being deleted": {func(t *testing.T, f *fixture) {
			f.ControlPlane.Finalizers = []string{controlplanev1.Finalizer}
			require.NoError(t, env.Client.Update(context.Background(), f.ControlPlane))
			require.NoError(t, env.Client.Delete(context.Background(), f.ControlPlane.DeepCopy()))
		}, "being deleted"},
		"a machine without data": {func(t *testing.T, f *fixture) {
			env.Create(t, testenv.Machine(f.Cluster, "m"))
		}, ""},
		"a machine with data": {func(t *testing.T, f *fixture) {
			env.Create(t, testenv.Machine(f.Cluster, "m", func(m *clusterv1.Machine) {
				m.Spec.Bootstrap.DataSecretName = ptr.To("m")
			}))
		}, "Machine m has bootstrap data"},
		"the Cluster now names another control plane": {func(t *testing.T, f *fixture) {
			other := f.Cluster.DeepCopy()
			other.Spec.ControlPlaneRef.Name = "other"
			require.NoError(t, env.Client.Update(context.Background(), other))
		}, "names KThreesControlPlane other"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			tc.arrange(t, f)
			err := f.MayGenerate(context.Background())
			if tc.why == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.why)
		})
	}
}

// annotate changes the live object only: what the Keeper holds stays as a stale cache would have it.
func (f *fixture) annotate(t *testing.T, key, value string) {
	live := f.ControlPlane.DeepCopy()
	env.Refresh(t, live)
	metav1.SetMetaDataAnnotation(&live.ObjectMeta, key, value)
	require.NoError(t, env.Client.Update(context.Background(), live))
}

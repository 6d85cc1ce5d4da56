package certs

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/capk3s/capk3s/test/testenv"
)

var env *testenv.Env

func TestMain(m *testing.M) { testenv.Main(m, &env) }

// fixture is a cluster named c and the surroundings that Reconcile asks.
type fixture struct {
	Input
	cached, live *testenv.Counter
	recorder     *events.FakeRecorder
	onServer     map[Purpose]KeyPair
	recovered    int
}

func newFixture(t *testing.T) *fixture {
	cluster := testenv.Cluster(env.Namespace(t), "c")
	env.Create(t, cluster)
	controlPlane := testenv.ControlPlane(cluster)
	env.Create(t, controlPlane)
	f := &fixture{recorder: events.NewFakeRecorder(100)}
	f.Input = Input{
		Recorder: f.recorder, Cluster: cluster, ControlPlane: controlPlane, Now: time.Now,
		Recover: func(context.Context) (map[Purpose]KeyPair, error) {
			f.recovered++
			return f.onServer, nil
		},
	}
	f.Client, f.cached = testenv.Count(env.Client)
	var live client.WithWatch
	live, f.live = testenv.Count(env.Client)
	f.APIReader = live
	return f
}

func (f *fixture) reconcile() (*Set, error) { return Reconcile(context.Background(), f.Input) }

// founded returns a fixture whose set was generated and whose cluster was founded then.
func founded(t *testing.T) (*fixture, *Set) {
	f := newFixture(t)
	set, err := f.reconcile()
	require.NoError(t, err)
	f.Initialized, f.Fingerprints = true, set.Fingerprints()
	f.cached.Reset()
	f.live.Reset()
	return f, set
}

// provide makes Secrets as a user would who has a CA of one certificate for each purpose.
func (f *fixture) provide(t *testing.T, change func(*corev1.Secret), purposes ...Purpose) map[Purpose]KeyPair {
	pairs := map[Purpose]KeyPair{}
	for _, purpose := range purposes {
		pair, err := newCA("user", now, KeyPair{})
		if purpose == ServiceAccount {
			pair, err = newServiceAccount()
		}
		require.NoError(t, err)
		pairs[purpose] = pair
		f.put(t, purpose, map[string]string{certKey: string(pair.Cert), keyKey: string(pair.Key)}, change)
	}
	return pairs
}

func (f *fixture) put(t *testing.T, purpose Purpose, data map[string]string, change func(*corev1.Secret)) *corev1.Secret {
	secret := testenv.Secret(f.Cluster, purpose.SecretName("c"), data, change)
	env.Create(t, secret)
	return secret
}

func (f *fixture) read(t *testing.T, name string) *corev1.Secret {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: f.Cluster.Namespace, Name: name}}
	env.Refresh(t, secret)
	return secret
}

func (f *fixture) drop(t *testing.T, purposes ...Purpose) {
	for _, purpose := range purposes {
		require.NoError(t, env.Client.Delete(context.Background(), f.read(t, purpose.SecretName("c"))))
	}
}

// secrets returns all Secrets of the namespace by name.
func (f *fixture) secrets(t *testing.T) map[string]corev1.Secret {
	list := &corev1.SecretList{}
	require.NoError(t, env.Client.List(context.Background(), list, client.InNamespace(f.Cluster.Namespace)))
	secrets := map[string]corev1.Secret{}
	for _, secret := range list.Items {
		secrets[secret.Name] = secret
	}
	return secrets
}

func requireReason(t *testing.T, err error, reason string, mentions ...string) {
	t.Helper()
	var typed *Error
	require.ErrorAs(t, err, &typed)
	require.Equal(t, reason, typed.Reason)
	for _, text := range mentions {
		require.Contains(t, typed.Message, text)
	}
	require.NotContains(t, typed.Message, "PRIVATE")
}

func asIs(*corev1.Secret) {}

// keysMade reads the operator's own metric.
func keysMade(t *testing.T) float64 {
	t.Helper()
	families, err := metrics.Registry.Gather()
	require.NoError(t, err)
	for _, family := range families {
		if family.GetName() == "capk3s_keys_generated_total" {
			return family.GetMetric()[0].GetCounter().GetValue()
		}
	}
	require.Fail(t, "the metric isn't registered")
	return 0
}

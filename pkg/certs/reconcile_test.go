package certs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
	"github.com/capk3s/capk3s/pkg/custody"
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

func TestReconcile_MakesTheSetOfANewCluster(t *testing.T) {
	f := newFixture(t)
	set, err := f.reconcile()
	require.NoError(t, err)

	secrets := f.secrets(t)
	require.Len(t, secrets, 7)
	for _, purpose := range known {
		secret := secrets[purpose.SecretName("c")]
		require.Equal(t, clusterv1.ClusterSecretType, secret.Type)
		require.Equal(t, []metav1.OwnerReference{custody.Reference(f.ControlPlane)}, secret.OwnerReferences)
		require.Equal(t, map[string]string{
			"cluster.x-k8s.io/cluster-name": "c", "clusterctl.cluster.x-k8s.io/move": "", controlplanev1.ManagedLabel: "",
		}, secret.Labels)
		pair, ok := set.Pair(purpose)
		require.True(t, ok)
		require.Equal(t, map[string][]byte{"tls.crt": pair.Cert, "tls.key": pair.Key}, secret.Data)
	}
	root, _ := set.Pair(Root)
	for _, purpose := range []Purpose{ServerCA, ClientCA, EtcdCA, EtcdPeerCA, RequestHeaderCA} {
		pair, _ := set.Pair(purpose)
		chain := certificates(t, pair.Cert)
		require.Len(t, chain, 2)
		require.NoError(t, chain[0].CheckSignatureFrom(certificates(t, root.Cert)[0]))
	}
	require.Len(t, set.Fingerprints(), 7)
	require.Contains(t, <-f.recorder.Events, CreatedEvent)
}

func TestSet_SeedsTheFirstServerWithoutTheRootKey(t *testing.T) {
	f := newFixture(t)
	set, err := f.reconcile()
	require.NoError(t, err)

	root, _ := set.Pair(Root)
	modes := map[string]uint32{}
	for _, file := range set.SeedFiles() {
		modes[file.Path] = file.Mode
		require.NotContains(t, string(file.Content), string(root.Key))
	}
	require.Equal(t, map[string]uint32{
		"server/tls/server-ca.crt": 0o644, "server/tls/server-ca.key": 0o600,
		"server/tls/client-ca.crt": 0o644, "server/tls/client-ca.key": 0o600,
		"server/tls/etcd/server-ca.crt": 0o644, "server/tls/etcd/server-ca.key": 0o600,
		"server/tls/etcd/peer-ca.crt": 0o644, "server/tls/etcd/peer-ca.key": 0o600,
		"server/tls/request-header-ca.crt": 0o644, "server/tls/request-header-ca.key": 0o600,
		"server/tls/service.key": 0o600,
	}, modes)
	require.Equal(t, f.read(t, "c-ca").Data["tls.crt"], set.ServerCABundle())
}

func TestReconcile_WritesNothingAndMakesNoKeyTheSecondTime(t *testing.T) {
	for name, initialized := range map[string]bool{"before the cluster is founded": false, "afterwards": true} {
		t.Run(name, func(t *testing.T) {
			f, set := founded(t)
			f.Initialized = initialized
			keys := keysMade(t)

			again, err := f.reconcile()
			require.NoError(t, err)
			require.Equal(t, set.Fingerprints(), again.Fingerprints())
			require.Empty(t, f.cached.Writes())
			require.Len(t, f.cached.Reads(), 7)
			require.Empty(t, f.live.Calls())
			require.Zero(t, f.recovered)
			require.Equal(t, keys, keysMade(t))
		})
	}
}

func TestReconcile_ParallelReconcilersAgreeOnOneSet(t *testing.T) {
	f := newFixture(t)
	const reconcilers = 10
	sets := make([]*Set, reconcilers)
	errs := make([]error, reconcilers)
	var all sync.WaitGroup
	for i := range reconcilers {
		all.Go(func() { sets[i], errs[i] = f.reconcile() })
	}
	all.Wait()

	for i := range reconcilers {
		require.NoError(t, errs[i])
		require.Equal(t, sets[0].Fingerprints(), sets[i].Fingerprints())
	}
	requireOneRoot(t, sets[0])
}

func TestReconcile_SignsWithTheRootThatAnotherReconcilerStoredFirst(t *testing.T) {
	f := newFixture(t)
	root, err := newRoot(now)
	require.NoError(t, err)
	f.Client = testenv.Before(f.Client.(client.WithWatch), testenv.Create, 1, func(testenv.Call) error {
		f.put(t, Root, map[string]string{certKey: string(root.Cert), keyKey: string(root.Key)}, func(s *corev1.Secret) {
			s.Labels[controlplanev1.ManagedLabel] = ""
		})
		return nil
	})
	set, err := f.reconcile()
	require.NoError(t, err)
	require.Equal(t, root.Cert, f.read(t, "c-root").Data["tls.crt"])
	requireOneRoot(t, set)
}

func requireOneRoot(t *testing.T, set *Set) {
	t.Helper()
	root, _ := set.Pair(Root)
	for _, profile := range profiles {
		if profile.purpose == ServiceAccount {
			continue
		}
		pair, _ := set.Pair(profile.purpose)
		chain := certificates(t, pair.Cert)
		require.Equal(t, certificates(t, root.Cert)[0].Raw, chain[1].Raw)
	}
}

func TestReconcile_FinishesASetAfterACrashBetweenAnyTwoWrites(t *testing.T) {
	for nth := 1; nth <= len(known); nth++ {
		t.Run(fmt.Sprintf("at write %d", nth), func(t *testing.T) {
			f := newFixture(t)
			working := f.Client
			f.Client = testenv.FailOn(working.(client.WithWatch), testenv.Create, nth, errors.New("crash"))
			_, err := f.reconcile()
			require.ErrorContains(t, err, "crash")
			before := f.secrets(t)
			require.Len(t, before, nth-1)

			f.Client = working
			set, err := f.reconcile()
			require.NoError(t, err)
			requireOneRoot(t, set)
			for name, secret := range before {
				require.Equal(t, secret.Data, f.read(t, name).Data)
			}
		})
	}
}

func TestReconcile_MakesNothingForAFoundedCluster(t *testing.T) {
	for name, tc := range map[string]struct {
		drop   []Purpose
		reason string
	}{
		"one is gone":        {[]Purpose{RequestHeaderCA}, controlplanev1.CertificatesLostReason},
		"several are gone":   {[]Purpose{ServerCA, ServiceAccount}, controlplanev1.CertificatesLostReason},
		"all are gone":       {known, controlplanev1.CertificatesLostReason},
		"only the root is":   {[]Purpose{Root}, ""},
		"nothing is missing": {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f, _ := founded(t)
			f.drop(t, tc.drop...)
			before := f.secrets(t)
			keys := keysMade(t)
			set, err := f.reconcile()
			require.Equal(t, before, f.secrets(t))
			require.Equal(t, keys, keysMade(t))
			if tc.reason == "" {
				require.NoError(t, err)
				return
			}
			require.Nil(t, set)
			requireReason(t, err, tc.reason)
			for _, purpose := range tc.drop {
				if purpose != Root {
					require.Contains(t, err.Error(), purpose.SecretName("c"))
				}
			}
			require.Equal(t, 1, f.recovered)
		})
	}
}

func TestReconcile_PutsBackWhatALiveServerHolds(t *testing.T) {
	f, set := founded(t)
	f.drop(t, ServerCA, ServiceAccount)
	serverCA, _ := set.Pair(ServerCA)
	account, _ := set.Pair(ServiceAccount)
	f.onServer = map[Purpose]KeyPair{ServerCA: serverCA, ServiceAccount: {Key: account.Key}}

	got, err := f.reconcile()
	require.NoError(t, err)
	require.Equal(t, set.Fingerprints(), got.Fingerprints())
	require.Equal(t, account.Cert, f.read(t, "c-sa").Data["tls.crt"])
	require.Contains(t, f.read(t, "c-ca").Labels, controlplanev1.ManagedLabel)
	require.True(t, metav1.IsControlledBy(ptr.To(*f.read(t, "c-ca")), f.ControlPlane))

	f.cached.Reset()
	_, err = f.reconcile()
	require.NoError(t, err)
	require.Empty(t, f.cached.Writes())
}

func TestReconcile_RefusesWhatAServerGivesIfItIsNotTheClusters(t *testing.T) {
	f, set := founded(t)
	f.drop(t, ServerCA, ClientCA)
	other, err := newRoot(now)
	require.NoError(t, err)
	clientCA, _ := set.Pair(ClientCA)
	f.onServer = map[Purpose]KeyPair{ServerCA: other, ClientCA: {Cert: clientCA.Cert}}

	_, err = f.reconcile()
	requireReason(t, err, controlplanev1.CertificatesLostReason, "c-ca", "c-cca", "founded with")
	require.NotContains(t, f.secrets(t), "c-ca")
	require.NotContains(t, f.secrets(t), "c-cca")
}

func TestReconcile_ReportsTheLossWhenNoServerCanBeAsked(t *testing.T) {
	f, _ := founded(t)
	f.drop(t, EtcdCA)
	f.Recover = func(context.Context) (map[Purpose]KeyPair, error) { return nil, errors.New("port 54321 is closed") }
	_, err := f.reconcile()
	requireReason(t, err, controlplanev1.CertificatesLostReason, "c-etcd")
	require.NotContains(t, err.Error(), "54321", "what differs each time would make the condition change each time")
}

func TestReconcile_UsesTheUsersSet(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*corev1.Secret)
		owned  bool
	}{
		"of Cluster API's type": {asIs, true},
		"not labelled":          {func(s *corev1.Secret) { s.Labels = nil }, true},
		"of another type":       {func(s *corev1.Secret) { s.Type, s.Labels = corev1.SecretTypeOpaque, nil }, false},
		"of the type of TLS":    {func(s *corev1.Secret) { s.Type = corev1.SecretTypeTLS }, false},
		"owned by cert-manager's": {func(s *corev1.Secret) {
			s.OwnerReferences = []metav1.OwnerReference{{
				APIVersion: "cert-manager.io/v1", Kind: "Certificate", Name: "x", UID: "1", Controller: ptr.To(true),
			}}
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			pairs := f.provide(t, tc.change, full...)
			keys := keysMade(t)
			set, err := f.reconcile()
			require.NoError(t, err)
			require.Equal(t, keys, keysMade(t))
			require.Len(t, f.secrets(t), len(full), "no root is made")
			require.Len(t, f.cached.Writes(), len(full))
			for purpose, pair := range pairs {
				secret := f.read(t, purpose.SecretName("c"))
				got, _ := set.Pair(purpose)
				require.Equal(t, pair.Cert, got.Cert)
				require.Equal(t, pair.Key, secret.Data["tls.key"])
				require.Equal(t, tc.owned, metav1.IsControlledBy(secret, f.ControlPlane))
				require.Equal(t, "c", secret.Labels[clusterv1.ClusterNameLabel])
				require.Contains(t, secret.Labels, "clusterctl.cluster.x-k8s.io/move")
				require.NotContains(t, secret.Labels, controlplanev1.ManagedLabel)
			}

			f.cached.Reset()
			_, err = f.reconcile()
			require.NoError(t, err)
			require.Empty(t, f.cached.Writes())
		})
	}
}

func TestReconcile_RefusesAnIncompleteSetBeforeTheCluster(t *testing.T) {
	for name, purposes := range map[string][]Purpose{
		"one":                  {ServerCA},
		"the root alone":       {Root},
		"all but one":          {ServerCA, ClientCA, EtcdCA, EtcdPeerCA, RequestHeaderCA},
		"the older provider's": legacy,
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.provide(t, asIs, purposes...)
			before := f.secrets(t)
			_, err := f.reconcile()
			requireReason(t, err, controlplanev1.CertificatesIncompleteReason, "c-sa")
			require.Equal(t, before, f.secrets(t))
		})
	}
}

func TestReconcile_RefusesAUsersSecretAmongOurs(t *testing.T) {
	f := newFixture(t)
	f.provide(t, func(s *corev1.Secret) { s.Labels[controlplanev1.ManagedLabel] = "" }, Root, ServerCA)
	f.provide(t, asIs, ClientCA)
	_, err := f.reconcile()
	requireReason(t, err, controlplanev1.CertificatesIncompleteReason)
	require.Len(t, f.secrets(t), 3)
}

func TestReconcile_KeepsTheClusterOfAnOlderProvider(t *testing.T) {
	f := newFixture(t)
	f.Initialized = true
	pairs := f.provide(t, asIs, legacy...)
	set, err := f.reconcile()
	require.NoError(t, err)
	require.Len(t, f.secrets(t), 3, "what is missing isn't made")
	require.Empty(t, f.live.Calls())
	require.Zero(t, f.recovered)
	require.Len(t, set.SeedFiles(), 6)
	require.Equal(t, pairs[ServerCA].Cert, set.ServerCABundle())

	got, err := Lookup(context.Background(), env.Client, client.ObjectKeyFromObject(f.Cluster))
	require.NoError(t, err)
	require.Equal(t, set.Fingerprints(), got.Fingerprints())

	f.drop(t, EtcdCA)
	_, err = f.reconcile()
	requireReason(t, err, controlplanev1.CertificatesLostReason, "c-etcd")
	require.NotContains(t, err.Error(), "c-sa")
}

// A Secret of another operator that wants the same name.
func TestReconcile_LeavesAForeignSecretByteForByte(t *testing.T) {
	for name, change := range map[string]func(*corev1.Secret){
		"controlled": func(s *corev1.Secret) {
			s.Type = corev1.SecretTypeOpaque
			s.OwnerReferences = []metav1.OwnerReference{{
				APIVersion: "kamaji.clastix.io/v1alpha1", Kind: "TenantControlPlane", Name: "tcp", UID: "1", Controller: ptr.To(true),
			}}
		},
		"stripped of its owner by a restore":                   func(s *corev1.Secret) { s.Type = corev1.SecretTypeOpaque },
		"stripped of its owner, of Cluster API's type":         asIs,
		"stripped of its owner, not labelled as the cluster's": func(s *corev1.Secret) { s.Labels = nil },
	} {
		for state, initialized := range map[string]bool{"new cluster": false, "founded": true} {
			t.Run(name+", "+state, func(t *testing.T) {
				f := newFixture(t)
				f.Initialized = initialized
				before := f.put(t, ServerCA, map[string]string{"ca.crt": "x", "ca.key": "y"}, change)
				_, err := f.reconcile()
				requireReason(t, err, controlplanev1.ForeignSecretReason, "c-ca", "ca.crt")
				after := f.read(t, "c-ca")
				require.Equal(t, before.ResourceVersion, after.ResourceVersion)
				require.Len(t, f.secrets(t), 1)
			})
		}
	}
}

func TestReconcile_SaysWhichSecretIsInvalid(t *testing.T) {
	for name, data := range map[string]map[string]string{
		"empty":            {},
		"certificate only": {"tls.crt": "x"},
		"garbage":          {"tls.crt": "x", "tls.key": "5ec2e7"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			before := f.put(t, ClientCA, data, asIs)
			_, err := f.reconcile()
			requireReason(t, err, controlplanev1.CertificatesInvalidReason, "c-cca")
			require.NotContains(t, err.Error(), "5ec2e7")
			require.Equal(t, before.ResourceVersion, f.read(t, "c-cca").ResourceVersion)
		})
	}
}

func TestReconcile_TakesOverFromAKThreesConfigAndAStaleOwner(t *testing.T) {
	f, _ := founded(t)
	stale := f.read(t, "c-ca")
	stale.OwnerReferences[0].UID = "dead"
	require.NoError(t, env.Client.Update(context.Background(), stale))
	config := f.read(t, "c-cca")
	config.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "bootstrap.cluster.x-k8s.io/v1beta1", Kind: "KThreesConfig", Name: "m", UID: "1", Controller: ptr.To(true),
	}}
	require.NoError(t, env.Client.Update(context.Background(), config))

	_, err := f.reconcile()
	require.NoError(t, err)
	for _, name := range []string{"c-ca", "c-cca"} {
		require.Equal(t, []metav1.OwnerReference{custody.Reference(f.ControlPlane)}, f.read(t, name).OwnerReferences)
	}
	require.Len(t, f.cached.Writes(), 2)
}

func TestReconcile_ReturnsTheSetThatAnotherControllerContests(t *testing.T) {
	f, _ := founded(t)
	for range 2 {
		taken := f.read(t, "c-etcd")
		taken.OwnerReferences = []metav1.OwnerReference{{APIVersion: "example.org/v1", Kind: "Vault", Name: "v", UID: "1", Controller: ptr.To(true)}}
		require.NoError(t, env.Client.Update(context.Background(), taken))
		f.cached.Reset()
		set, err := f.reconcile()
		require.NotNil(t, set)
		if err != nil {
			requireReason(t, err, controlplanev1.ForeignSecretReason, "c-etcd", "Vault v")
			require.Empty(t, f.cached.Writes())
			return
		}
	}
	require.Fail(t, "the second time must be contested")
}

func TestReconcile_LeavesTheSecretsOfAnotherControlPlane(t *testing.T) {
	f, _ := founded(t)
	f.Cluster.Spec.ControlPlaneRef.Name = "other"
	_, err := f.reconcile()
	requireReason(t, err, controlplanev1.ForeignClusterReason)
	require.Empty(t, f.cached.Calls())
}

func TestReconcile_ReturnsErrorsAndWritesNothing(t *testing.T) {
	broken := apierrors.NewInternalError(errors.New("etcd is on fire"))
	fail := func(c any, verb testenv.Verb, nth int) client.WithWatch {
		return testenv.FailOn(c.(client.WithWatch), verb, nth, broken)
	}
	for name, arrange := range map[string]func(f *fixture){
		"first cached read": func(f *fixture) { f.Client = fail(f.Client, testenv.Get, 1) },
		"last cached read":  func(f *fixture) { f.Client = fail(f.Client, testenv.Get, len(known)) },
		"first live read":   func(f *fixture) { f.APIReader = fail(f.APIReader, testenv.Get, 1) },
		"last live read":    func(f *fixture) { f.APIReader = fail(f.APIReader, testenv.Get, len(known)) },
		"live list":         func(f *fixture) { f.APIReader = fail(f.APIReader, testenv.List, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			arrange(f)
			_, err := f.reconcile()
			require.ErrorIs(t, err, broken)
			require.Empty(t, f.secrets(t))
		})
	}
}

func TestLookup_WaitsForTheWholeSet(t *testing.T) {
	f, set := founded(t)
	reader, requests := testenv.Count(env.Client)
	key := client.ObjectKeyFromObject(f.Cluster)
	got, err := Lookup(context.Background(), reader, key)
	require.NoError(t, err)
	require.Equal(t, set.ServerCABundle(), got.ServerCABundle())
	require.Equal(t, len(set.SeedFiles()), len(got.SeedFiles()))

	f.drop(t, EtcdPeerCA, RequestHeaderCA, ServiceAccount)
	_, err = Lookup(context.Background(), reader, key)
	require.True(t, apierrors.IsNotFound(err), "a set that isn't finished is no older provider's")
	require.Empty(t, requests.Writes())
}

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

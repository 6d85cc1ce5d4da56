package certs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
	"github.com/capk3s/capk3s/pkg/custody"
	"github.com/capk3s/capk3s/test/testenv"
)

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

package certs

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
)

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

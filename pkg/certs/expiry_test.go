package certs

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capk3s/capk3s/pkg/k3s"
	"github.com/capk3s/capk3s/test/testenv/authority"
)

func TestSet_ExpiresWithTheFirstCertificateOfAChain(t *testing.T) {
	_, set := founded(t)
	year := 365 * 24 * time.Hour
	root, err := newCA("root", now, KeyPair{})
	require.NoError(t, err)
	set.pairs[Root] = root
	require.Empty(t, set.Expiring(now.Add(year)))

	long := authority.New(t, nil, authority.RSA(t), now.Add(3*year))
	short := authority.New(t, nil, authority.RSA(t), now.Add(year))
	leaf := authority.New(t, short, authority.RSA(t), now.Add(2*year))
	set.pairs = map[Purpose]KeyPair{ServerCA: {Cert: long.Cert, Key: long.Key}, ClientCA: {Cert: leaf.Cert, Key: leaf.Key}}
	expiring := set.Expiring(now.Add(year + time.Hour))
	require.Len(t, expiring, 1)
	require.WithinDuration(t, now.Add(year), expiring[ClientCA], time.Second, "its root expires first")
	require.Len(t, set.Expiring(now.Add(4*year)), 2)
}

func TestKubeconfigExpiry(t *testing.T) {
	f := newKubeconfigFixture(t)
	expiry := func() time.Time {
		at, err := KubeconfigExpiry(context.Background(), env.Client, client.ObjectKeyFromObject(f.KubeconfigInput.Cluster))
		require.NoError(t, err)
		return at
	}
	require.Zero(t, expiry(), "there is none")
	require.NoError(t, f.reconcile())
	require.WithinDuration(t, time.Now().Add(kubeconfigLifetime), expiry(), time.Minute)
	f.overwrite(t, "current-context: x")
	require.Zero(t, expiry(), "it has no certificate")
}

// CAs of every kind that users bring are used as they are, and give the hash that K3s computes: of the file's bytes for
// one certificate, of the root's DER for a chain.
func TestReconcile_UsesEveryKindOfCA(t *testing.T) {
	for name, newKey := range map[string]func(testing.TB) crypto.Signer{
		"RSA": authority.RSA, "ECDSA P-256": newECDSA(elliptic.P256()), "ECDSA P-384": newECDSA(elliptic.P384()),
	} {
		for kind, links := range map[string]int{"one certificate": 1, "a chain of two": 2, "a chain of three": 3} {
			t.Run(name+", "+kind, func(t *testing.T) {
				f := newFixture(t)
				given := map[Purpose]*authority.CA{}
				for _, purpose := range full {
					var ca *authority.CA
					for range links {
						ca = authority.New(t, ca, newKey(t), now.Add(10*365*24*time.Hour))
					}
					given[purpose] = ca
					data := map[string]string{certKey: string(ca.Cert), keyKey: string(ca.Key)}
					if purpose == ServiceAccount {
						data = map[string]string{keyKey: string(ca.Key)}
					}
					f.put(t, purpose, data, asIs)
				}

				set, err := f.reconcile()
				require.NoError(t, err)
				require.Len(t, f.secrets(t), len(full))
				require.Equal(t, given[ServerCA].Cert, set.ServerCABundle())
				hash, err := k3s.CAHash(set.ServerCABundle())
				require.NoError(t, err)
				require.Equal(t, hashOf(given[ServerCA], links), hash)
				require.Len(t, set.SeedFiles(), 11)

				admin, err := NewClientCertificate(set.ClientCA(), "admin", []string{"system:masters"}, time.Hour, time.Now())
				require.NoError(t, err)
				roots := x509.NewCertPool()
				roots.AppendCertsFromPEM(set.ClientCA().Cert)
				_, err = admin.Leaf.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
				require.NoError(t, err)
			})
		}
	}
}

// hashOf is K3s' hash of a CA with so many certificates.
func hashOf(ca *authority.CA, links int) string {
	data := ca.Cert
	if links > 1 {
		data = ca.Root.Raw
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func newECDSA(curve elliptic.Curve) func(testing.TB) crypto.Signer {
	return func(t testing.TB) crypto.Signer {
		t.Helper()
		key, err := ecdsa.GenerateKey(curve, rand.Reader)
		require.NoError(t, err)
		return key
	}
}

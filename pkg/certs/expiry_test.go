package certs

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capk3s/capk3s/pkg/k3s"
)

func TestSet_ExpiresWithTheFirstCertificateOfAChain(t *testing.T) {
	_, set := founded(t)
	year := 365 * 24 * time.Hour
	root, err := newCA("root", now, KeyPair{})
	require.NoError(t, err)
	set.pairs[Root] = root
	require.Empty(t, set.Expiring(now.Add(year)))

	long := authority(t, nil, newRSA(t), 3*year)
	short := authority(t, nil, newRSA(t), year)
	leaf := authority(t, short, newRSA(t), 2*year)
	set.pairs = map[Purpose]KeyPair{ServerCA: long.pair, ClientCA: leaf.pair}
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
	for name, newKey := range map[string]func(*testing.T) crypto.Signer{
		"RSA": newRSA, "ECDSA P-256": newECDSA(elliptic.P256()), "ECDSA P-384": newECDSA(elliptic.P384()),
	} {
		for kind, links := range map[string]int{"one certificate": 1, "a chain of two": 2, "a chain of three": 3} {
			t.Run(name+", "+kind, func(t *testing.T) {
				f := newFixture(t)
				given := map[Purpose]*testAuthority{}
				for _, purpose := range full {
					var ca *testAuthority
					for range links {
						ca = authority(t, ca, newKey(t), 10*365*24*time.Hour)
					}
					given[purpose] = ca
					data := map[string]string{certKey: string(ca.pair.Cert), keyKey: string(ca.pair.Key)}
					if purpose == ServiceAccount {
						data = map[string]string{keyKey: string(ca.pair.Key)}
					}
					f.put(t, purpose, data, asIs)
				}

				set, err := f.reconcile()
				require.NoError(t, err)
				require.Len(t, f.secrets(t), len(full))
				require.Equal(t, given[ServerCA].pair.Cert, set.ServerCABundle())
				hash, err := k3s.CAHash(set.ServerCABundle())
				require.NoError(t, err)
				require.Equal(t, given[ServerCA].hash(links), hash)
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

// testAuthority is a CA as users make them.
type testAuthority struct {
	certificate *x509.Certificate
	root        *x509.Certificate
	key         crypto.Signer
	pair        KeyPair
}

// hash is that of K3s.
func (a *testAuthority) hash(links int) string {
	data := a.pair.Cert
	if links > 1 {
		data = a.root.Raw
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func authority(t *testing.T, issuer *testAuthority, key crypto.Signer, life time.Duration) *testAuthority {
	t.Helper()
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "user-" + serial.String()},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(life),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	parent, signer := template, key
	if issuer != nil {
		parent, signer = issuer.certificate, issuer.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	a := &testAuthority{key: key}
	a.certificate, err = x509.ParseCertificate(der)
	require.NoError(t, err)
	a.root = a.certificate
	a.pair = KeyPair{Cert: certificatePEM(der), Key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})}
	if issuer != nil {
		a.root = issuer.root
		a.pair.Cert = append(a.pair.Cert, issuer.pair.Cert...)
	}
	return a
}

func newRSA(t *testing.T) crypto.Signer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	return key
}

func newECDSA(curve elliptic.Curve) func(*testing.T) crypto.Signer {
	return func(t *testing.T) crypto.Signer {
		t.Helper()
		key, err := ecdsa.GenerateKey(curve, rand.Reader)
		require.NoError(t, err)
		return key
	}
}

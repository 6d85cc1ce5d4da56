//go:build e2e

package e2e

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"math/big"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capk3s/capk3s/pkg/k3s"
)

// userCAs are a user's own, as a company's: RSA, each with the chain that leads to the company's root.
type userCAs struct {
	// secrets are their data.
	secrets map[string]map[string][]byte
	// hash is what joining machines know the root by.
	hash string
}

// authority is a certificate with its key and what follows it in a bundle.
type authority struct {
	certificate *x509.Certificate
	key         *rsa.PrivateKey
	bundle      []byte
}

// createUserCAs creates the Secrets that docs/custody.md asks for.
func (c *cluster) createUserCAs() userCAs {
	c.t.Helper()
	root := newAuthority(c.t, "company root", nil)
	intermediate := newAuthority(c.t, "company intermediate", root)
	sum := sha256.Sum256(root.certificate.Raw)
	cas := userCAs{secrets: map[string]map[string][]byte{}, hash: hex.EncodeToString(sum[:])}
	for _, suffix := range []string{"ca", "cca", "etcd", "etcd-peer", "proxy", "sa"} {
		ca := newAuthority(c.t, "company "+suffix, intermediate)
		data := map[string][]byte{"tls.crt": ca.bundle, "tls.key": keyPEM(c.t, ca.key)}
		if suffix == "sa" {
			delete(data, "tls.crt")
		}
		name := c.name + "-" + suffix
		cas.secrets[name] = data
		c.create(context.Background(), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: c.name}},
			Type:       clusterv1.ClusterSecretType, Data: data,
		})
	}
	return cas
}

// requireUserCAs checks that the CAs are the user's bytes and the cluster's own, that no root was made beside them, and
// that every machine but the one that founded the cluster joined knowing the right one.
func (c *cluster) requireUserCAs(cas userCAs) {
	c.t.Helper()
	ctx := context.Background()
	require.NoError(c.t, c.checkSecrets(ctx, cas.secrets))
	assert.NotContains(c.t, c.objectsLeft(), "secret/"+c.name+"-root")
	machines, knowing := c.machines(), 0
	for _, machine := range machines {
		withToken(c.t, c.secret(*machine.Spec.Bootstrap.DataSecretName).Data["value"], func(token string) string {
			hash, _, _, err := k3s.ParseToken(token)
			assert.NoError(c.t, err)
			if hash != "" {
				assert.Equalf(c.t, cas.hash, hash, "what Machine %s knows the CA by", machine.Name)
				knowing++
			}
			return token
		})
	}
	assert.GreaterOrEqual(c.t, knowing, len(machines)-1)
}

// newAuthority makes a CA, a self-signed one without an issuer.
func newAuthority(t testing.TB, name string, issuer *authority) *authority {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(5, 0, 0),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true,
	}
	if issuer == nil {
		issuer = &authority{certificate: template, key: key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, issuer.certificate, key.Public(), crypto.Signer(issuer.key))
	require.NoError(t, err)
	certificate, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	own := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return &authority{certificate: certificate, key: key, bundle: slices.Concat(own, issuer.bundle)}
}

func keyPEM(t testing.TB, key *rsa.PrivateKey) []byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

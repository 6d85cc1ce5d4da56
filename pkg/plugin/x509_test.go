package plugin_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// newAuthority makes a CA that expires then.
func newAuthority(t *testing.T, expiry time.Time) tls.Certificate {
	t.Helper()
	return issued(t, &x509.Certificate{
		Subject:   pkix.Name{CommonName: "test"},
		NotBefore: expiry.Add(-24 * time.Hour), NotAfter: expiry, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, nil)
}

// servingCertificate makes what a server at 127.0.0.1 serves with.
func servingCertificate(t *testing.T, ca tls.Certificate) tls.Certificate {
	t.Helper()
	now := time.Now()
	return issued(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "k3s"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, &ca)
}

// issued signs a certificate with its issuer's key, or with its own.
func issued(t *testing.T, template *x509.Certificate, issuer *tls.Certificate) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template.SerialNumber = big.NewInt(1)
	parent, signer := template, any(key)
	if issuer != nil {
		parent, signer = issuer.Leaf, issuer.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	require.NoError(t, err)
	leaf, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// bundleOf is a certificate in PEM.
func bundleOf(certificate tls.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Certificate[0]})
}

// Package authority makes certificate authorities as users bring them.
package authority

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// CA is a certificate authority.
type CA struct {
	// Root is the certificate at the end of the chain: the CA's own if nobody issued it.
	Root *x509.Certificate
	// Cert is the CA's certificate in PEM, with those of its issuers behind it; Key is its key in PKCS #8.
	Cert, Key []byte

	certificate *x509.Certificate
	signer      crypto.Signer
}

// New makes a CA with this key that expires then. Without an issuer it signs itself.
func New(t testing.TB, issuer *CA, key crypto.Signer, expiry time.Time) *CA {
	t.Helper()
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "user-" + serial.String()},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: expiry,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	parent, signer := template, key
	if issuer != nil {
		parent, signer = issuer.certificate, issuer.signer
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	require.NoError(t, err)
	certificate, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	ca := &CA{
		Root: certificate, Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key:         pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
		certificate: certificate, signer: key,
	}
	if issuer != nil {
		ca.Root, ca.Cert = issuer.Root, slices.Concat(ca.Cert, issuer.Cert)
	}
	return ca
}

// RSA makes a key.
func RSA(t testing.TB) crypto.Signer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	return key
}

package pki

import (
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"time"

	"github.com/capk3s/capk3s/test/k3s/internal/token"
)

const caLifetime = 10 * 365 * 24 * time.Hour

// CA signs certificates.
type CA struct {
	// Chain is the CA's certificate, followed by what signed it.
	Chain []*x509.Certificate
	key   crypto.Signer
}

// EnsureCAs makes what is missing of the CAs, the service account key and the
// no-chain copies. A pair that is there is never touched.
func EnsureCAs(f Files) error {
	for _, ca := range []struct{ name, cert, key string }{
		{"k3s-client", f.ClientCA, f.ClientCAKey},
		{"k3s-server", f.ServerCA, f.ServerCAKey},
		{"k3s-request-header", f.RequestHeaderCA, f.RequestHeaderCAKey},
		{"etcd-server", f.ETCDServerCA, f.ETCDServerCAKey},
		{"etcd-peer", f.ETCDPeerCA, f.ETCDPeerCAKey},
	} {
		if err := ensureCA(ca.name, ca.cert, ca.key); err != nil {
			return fmt.Errorf("CA %s: %w", ca.name, err)
		}
	}
	if _, err := LoadOrCreateKey(f.ServiceKey); err != nil {
		return fmt.Errorf("service account key: %w", err)
	}
	if err := withoutChain(f.ClientCA, f.ClientCANoChain); err != nil {
		return err
	}
	return withoutChain(f.ServerCA, f.ServerCANoChain)
}

// ensureCA keeps a complete pair. A key alone gets a new self-signed
// certificate; a certificate alone is replaced, with a new key.
func ensureCA(name, certPath, keyPath string) error {
	if exists(certPath) && exists(keyPath) {
		return nil
	}
	key, err := LoadOrCreateKey(keyPath)
	if err != nil {
		return err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(0),
		Subject:               pkix.Name{CommonName: fmt.Sprintf("%s-ca@%d", name, now.Unix())},
		NotBefore:             now.UTC(),
		NotAfter:              now.Add(caLifetime).UTC(),
		KeyUsage:              x509.KeyUsageKeyEncipherment | x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return err
	}
	return write(certPath, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644)
}

// withoutChain writes the first certificate of a bundle to a file of its own.
func withoutChain(bundle, path string) error {
	raw, err := os.ReadFile(bundle)
	if err != nil {
		return err
	}
	certs, err := token.ParseBundle(raw)
	if err != nil {
		return fmt.Errorf("CA %s: %w", bundle, err)
	}
	return write(path, encode(certs[:1]), 0o644)
}

// LoadCA reads a CA's bundle and key.
func LoadCA(certPath, keyPath string) (*CA, error) {
	rawCert, err := os.ReadFile(certPath)
	if err != nil {
		return nil, err
	}
	chain, err := token.ParseBundle(rawCert)
	if err != nil {
		return nil, fmt.Errorf("CA %s: %w", certPath, err)
	}
	rawKey, err := os.ReadFile(keyPath)
	if err != nil {
		return nil, err
	}
	key, err := ParseKey(rawKey)
	if err != nil {
		return nil, fmt.Errorf("key %s: %w", keyPath, err)
	}
	return &CA{Chain: chain, key: key}, nil
}

// encode writes certificates as PEM.
func encode(certs []*x509.Certificate) []byte {
	var out []byte
	for _, cert := range certs {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})...)
	}
	return out
}

package certs

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"k8s.io/client-go/util/keyutil"
)

const (
	certificateBlock = "CERTIFICATE"
	publicKeyBlock   = "PUBLIC KEY"
)

var (
	errNoCertificate = errors.New("holds no PEM certificate")
	errNoKey         = errors.New("holds no PEM private key")
	errOtherKey      = errors.New("the private key isn't the one of the first certificate")
	errNotCA         = errors.New("the first certificate is no certificate authority")
)

// KeyPair is a certificate, or a public key, and the private key to it, in PEM. However it is formatted or encoded,
// the private key doesn't show.
type KeyPair struct {
	// Cert is the certificate and those that lead to its root; for ServiceAccount the public key.
	Cert []byte

	// Key is the private key.
	Key []byte
}

const redacted = "[redacted key pair]"

// String returns a placeholder.
func (KeyPair) String() string { return redacted }

// GoString returns a placeholder.
func (KeyPair) GoString() string { return redacted }

// Format writes a placeholder for every verb.
func (KeyPair) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// MarshalJSON returns a placeholder.
func (KeyPair) MarshalJSON() ([]byte, error) { return []byte(`"` + redacted + `"`), nil }

// MarshalLog returns a placeholder for loggers of the logr interface.
func (KeyPair) MarshalLog() any { return redacted }

// LogValue returns a placeholder for loggers of log/slog.
func (KeyPair) LogValue() slog.Value { return slog.StringValue(redacted) }

// TLS returns the pair as a certificate for connections.
func (p KeyPair) TLS() (tls.Certificate, error) { return tls.X509KeyPair(p.Cert, p.Key) }

// Fingerprint returns the SHA-256, in hexadecimal, of the public key of the first certificate or public key in a PEM
// bundle. It stays the same when the certificate is renewed with the same key.
func Fingerprint(bundle []byte) (string, error) {
	for rest := bundle; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return "", errNoCertificate
		}
		switch block.Type {
		case certificateBlock:
			certificate, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				return "", err
			}
			return sum(certificate.RawSubjectPublicKeyInfo), nil
		case publicKeyBlock:
			return sum(block.Bytes), nil
		}
	}
}

func sum(data []byte) string {
	digest := sha256.Sum256(data)
	return hex.EncodeToString(digest[:])
}

// checked returns the pair if K3s can use it for a purpose. A service account's public key is derived when it is
// missing.
func (p KeyPair) checked(purpose Purpose, now time.Time) (KeyPair, error) {
	key, err := parseKey(p.Key)
	if err != nil {
		return KeyPair{}, fmt.Errorf("tls.key %w", err)
	}
	if purpose == ServiceAccount {
		return p.checkedServiceAccount(key)
	}
	certificate, err := parseCertificate(p.Cert)
	if err != nil {
		return KeyPair{}, fmt.Errorf("tls.crt %w", err)
	}
	switch {
	case !samePublicKey(certificate.PublicKey, key):
		return KeyPair{}, errOtherKey
	case !certificate.IsCA:
		return KeyPair{}, errNotCA
	case now.After(certificate.NotAfter):
		return KeyPair{}, fmt.Errorf("the certificate expired on %s", certificate.NotAfter.Format(time.DateOnly))
	}
	return p, nil
}

func (p KeyPair) checkedServiceAccount(key crypto.Signer) (KeyPair, error) {
	if len(p.Cert) > 0 {
		keys, err := keyutil.ParsePublicKeysPEM(p.Cert)
		if err != nil || len(keys) == 0 {
			return KeyPair{}, errors.New("tls.crt holds no PEM public key")
		}
		if !samePublicKey(keys[0], key) {
			return KeyPair{}, errors.New("tls.crt isn't the public key of tls.key")
		}
		return p, nil
	}
	public, err := publicKeyPEM(key.Public())
	return KeyPair{Cert: public, Key: p.Key}, err
}

func samePublicKey(public crypto.PublicKey, private crypto.Signer) bool {
	comparable, ok := private.Public().(interface{ Equal(crypto.PublicKey) bool })
	return ok && comparable.Equal(public)
}

// parseCertificate returns the first certificate after having made sure that all of them can be read.
func parseCertificate(bundle []byte) (*x509.Certificate, error) {
	var first *x509.Certificate
	for rest := bundle; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != certificateBlock {
			continue
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, errors.New("holds a broken certificate")
		}
		if first == nil {
			first = certificate
		}
	}
	if first == nil {
		return nil, errNoCertificate
	}
	return first, nil
}

func parseKey(data []byte) (crypto.Signer, error) {
	key, err := keyutil.ParsePrivateKeyPEM(data)
	if err != nil {
		return nil, errNoKey // The parser's error isn't needed, and nothing of the key may show.
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, errNoKey
	}
	return signer, nil
}

func publicKeyPEM(key crypto.PublicKey) ([]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return nil, fmt.Errorf("encoding a public key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: publicKeyBlock, Bytes: der}), nil
}

func certificatePEM(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: certificateBlock, Bytes: der})
}

func privateKeyPEM(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encoding a private key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: keyutil.ECPrivateKeyBlockType, Bytes: der}), nil
}

//go:build conformance

package conformance

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// seed is a root and the five CAs below it, as files of the server's tls dir.
type seed struct {
	files map[string][]byte
	// rootHash is the sha256 of the root's DER, in hexadecimal.
	rootHash string
}

func newSeed(t *testing.T) *seed {
	t.Helper()
	s := &seed{files: map[string][]byte{}}
	rootKey := newKey(t)
	root := newCA(t, "seed-root", nil, rootKey, rootKey)
	digest := sha256.Sum256(root.Raw)
	s.rootHash = hex.EncodeToString(digest[:])
	for _, name := range []string{"server-ca", "client-ca", "request-header-ca", "etcd/server-ca", "etcd/peer-ca"} {
		key := newKey(t)
		ca := newCA(t, "seed-"+strings.ReplaceAll(name, "/", "-"), root, key, rootKey)
		s.files[name+".crt"] = append(encodePEM("CERTIFICATE", ca.Raw), encodePEM("CERTIFICATE", root.Raw)...)
		der, err := x509.MarshalECPrivateKey(key)
		require.NoError(t, err)
		s.files[name+".key"] = encodePEM("EC PRIVATE KEY", der)
	}
	return s
}

func (s *seed) write(t *testing.T, m *machine) {
	t.Helper()
	for name, content := range s.files {
		path := m.server("tls", name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, content, 0o600))
	}
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return key
}

// newCA signs a CA; without a parent it signs itself.
func newCA(t *testing.T, name string, parent *x509.Certificate, key, parentKey *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             time.Now().Add(-5 * time.Minute),
		NotAfter:              time.Now().AddDate(10, 0, 0),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), parentKey)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return cert
}

func encodePEM(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

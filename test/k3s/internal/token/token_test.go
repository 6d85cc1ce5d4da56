package token

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
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	hash := strings.Repeat("a", 64)
	for value, want := range map[string]Token{
		"abc":                          {Password: "abc"},
		"a:b::c":                       {Password: "a:b::c"},
		"K10" + hash + "::server:abc":  {CAHash: hash, User: "server", Password: "abc"},
		"K10" + hash + "::node:a::b:c": {CAHash: hash, User: "node", Password: "a::b:c"},
		"K10::server:abc":              {User: "server", Password: "abc"},
		"abcdef.0123456789abcdef":      {Bearer: "abcdef.0123456789abcdef"},
		"K10" + hash + "::abcdef.0123456789abcdef": {CAHash: hash, Bearer: "abcdef.0123456789abcdef"},
	} {
		got, err := Parse(value)
		require.NoError(t, err, value)
		assert.Equal(t, want, got, value)
	}
	for value, want := range map[string]string{
		"":                     "token must not be empty",
		"K10abc":               "invalid token format",
		"K10short::server:abc": "invalid token CA hash length",
		"K10" + hash + "::abc": "invalid token format",
		"K10" + hash + "::a:":  "invalid token format",
	} {
		_, err := Parse(value)
		assert.EqualError(t, err, want, value)
	}
}

func TestNormalize_RefusesBootstrapTokens(t *testing.T) {
	_, err := Normalize("abcdef.0123456789abcdef")
	assert.EqualError(t, err, "failed to normalize server token; must be in format K10<CA-HASH>::<USERNAME>:<PASSWORD> or <PASSWORD>")
	password, err := Normalize("K10::server:abc")
	require.NoError(t, err)
	assert.Equal(t, "abc", password)
}

func TestKeyHash(t *testing.T) {
	assert.Equal(t, "ba7816bf8f01", KeyHash("abc"))
	assert.Equal(t, "1a17ea356920", KeyHash("mytoken"))
}

func TestHashCA_OfOneCertificateIsThatOfTheBytes(t *testing.T) {
	_, _, root := certificate(t, "root", nil, nil)
	bundle := pemOf(root)
	digest := sha256.Sum256(bundle)
	got, err := HashCA(bundle)
	require.NoError(t, err)
	assert.Equal(t, hex.EncodeToString(digest[:]), got)
}

func TestHashCA_OfAChainIsThatOfTheRoot(t *testing.T) {
	rootCert, rootKey, root := certificate(t, "root", nil, nil)
	_, _, leaf := certificate(t, "leaf", rootCert, rootKey)
	digest := sha256.Sum256(root)
	for _, bundle := range [][]byte{append(pemOf(leaf), pemOf(root)...), append(append(pemOf(leaf), '\n'), pemOf(root)...)} {
		got, err := HashCA(bundle)
		require.NoError(t, err)
		assert.Equal(t, hex.EncodeToString(digest[:]), got)
	}
}

func TestHashCA_RefusesNonsense(t *testing.T) {
	_, err := HashCA([]byte("nonsense"))
	assert.Error(t, err)
}

func certificate(t *testing.T, name string, parent *x509.Certificate, parentKey *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true,
	}
	if parent == nil {
		parent, parentKey = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), parentKey)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return cert, key, der
}

func pemOf(der []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}) }

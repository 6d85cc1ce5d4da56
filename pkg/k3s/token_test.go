package k3s

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

	"github.com/stretchr/testify/require"
)

func TestValidateToken(t *testing.T) {
	hash := strings.Repeat("0a", 32)
	tests := map[string]struct {
		token string
		want  error
	}{
		"hexadecimal":                     {"0123456789abcdef0123456789abcdef", nil},
		"digits only":                     {"0123", nil},
		"colons in the password":          {"a:b::c", nil},
		"empty":                           {"", errTokenEmpty},
		"leading space":                   {" secret", errTokenSpace},
		"trailing newline":                {"secret\n", errTokenSpace},
		"newline inside":                  {"sec\nret", errTokenControl},
		"bootstrap token":                 {"abcdef.0123456789abcdef", errTokenBootstrap},
		"almost a bootstrap token":        {"abcdef.0123456789abcde", nil},
		"K10 without the rest":            {"K10secret", errTokenFormat},
		"full form with short hash":       {"K10abc::server:secret", errTokenHash},
		"full form":                       {"K10" + hash + "::server:secret", errTokenFull},
		"full form without credentials":   {"K10" + hash + "::", errTokenFormat},
		"full form around bootstrap form": {"K10" + hash + "::abcdef.0123456789abcdef", errTokenFormat},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := ValidateToken(tt.token)
			require.ErrorIs(t, err, tt.want)
			if err != nil && tt.token != "" {
				require.NotContains(t, err.Error(), "secret")
			}
		})
	}
}

func TestCAHash_OfOneCertificateIsTheHashOfTheBytes(t *testing.T) {
	root := newTestCA(t, "root", nil)

	hash, err := CAHash(root.pem)
	require.NoError(t, err)
	require.Equal(t, hexSum(root.pem), hash)

	withNewline, err := CAHash(append([]byte("\n"), root.pem...))
	require.NoError(t, err)
	require.NotEqual(t, hash, withNewline)
}

func TestCAHash_OfAChainIsTheHashOfTheRoot(t *testing.T) {
	root := newTestCA(t, "root", nil)
	middle := newTestCA(t, "middle", root)
	leaf := newTestCA(t, "leaf", middle)
	stranger := newTestCA(t, "stranger", nil)
	sum := sha256.Sum256(root.cert.Raw)
	want := hex.EncodeToString(sum[:])

	for name, bundle := range map[string][][]byte{
		"leaf, middle, root":  {leaf.pem, middle.pem, root.pem},
		"leaf, root, middle":  {leaf.pem, root.pem, middle.pem},
		"middle, root":        {middle.pem, root.pem},
		"a stranger is there": {leaf.pem, stranger.pem, middle.pem, root.pem},
	} {
		t.Run(name, func(t *testing.T) {
			hash, err := CAHash(concat(bundle...))
			require.NoError(t, err)
			require.Equal(t, want, hash)
		})
	}
}

func TestCAHash_RefusesWhatIsNoBundle(t *testing.T) {
	_, err := CAHash(nil)
	require.ErrorIs(t, err, errNoCertificate)
	_, err = CAHash([]byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"))
	require.Error(t, err)
}

func TestFullToken_RoundTrip(t *testing.T) {
	root := newTestCA(t, "root", nil)
	full, err := FullToken(root.pem, ServerUser, "pass:word")
	require.NoError(t, err)

	hash, user, password, err := ParseToken(full)
	require.NoError(t, err)
	require.Equal(t, hexSum(root.pem), hash)
	require.Equal(t, ServerUser, user)
	require.Equal(t, "pass:word", password)

	_, err = FullToken(root.pem, ServerUser, "")
	require.ErrorIs(t, err, errTokenEmpty)
	_, err = FullToken(nil, ServerUser, "password")
	require.ErrorIs(t, err, errNoCertificate)
}

func TestParseToken_ShortForm(t *testing.T) {
	hash, user, password, err := ParseToken("a:b")
	require.NoError(t, err)
	require.Empty(t, hash)
	require.Empty(t, user)
	require.Equal(t, "a:b", password)
}

func TestParseToken_EmptyHash(t *testing.T) {
	hash, user, password, err := ParseToken("K10::server:secret")
	require.NoError(t, err)
	require.Empty(t, hash)
	require.Equal(t, ServerUser, user)
	require.Equal(t, "secret", password)
}

type testCA struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newTestCA(t *testing.T, name string, issuer *testCA) *testCA {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	parent, signer := template, key
	if issuer != nil {
		parent, signer = issuer.cert, issuer.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return &testCA{cert: cert, key: key, pem: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

func concat(parts ...[]byte) []byte {
	var all []byte
	for _, part := range parts {
		all = append(all, part...)
	}
	return all
}

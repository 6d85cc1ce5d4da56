package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var now = time.Now().Truncate(time.Second)

func TestNewCA_MakesALeafAndRootLikeK3s(t *testing.T) {
	root, err := newRoot(now)
	require.NoError(t, err)
	leaf, err := newCA("k3s-server-ca", now, root)
	require.NoError(t, err)

	chain := certificates(t, leaf.Cert)
	require.Len(t, chain, 2)
	require.Equal(t, certificates(t, root.Cert)[0].Raw, chain[1].Raw)
	require.NoError(t, chain[0].CheckSignatureFrom(chain[1]))
	require.NoError(t, chain[1].CheckSignatureFrom(chain[1]))
	require.Equal(t, fmt.Sprintf("k3s-server-ca@%d", now.Unix()), chain[0].Subject.CommonName)
	require.Equal(t, fmt.Sprintf("k3s-root-ca@%d", now.Unix()), chain[1].Subject.CommonName)
	for _, certificate := range chain {
		require.True(t, certificate.IsCA)
		require.Equal(t, -1, certificate.MaxPathLen, "no limit, so that a CA can be rotated")
		require.Equal(t, elliptic.P256(), certificate.PublicKey.(*ecdsa.PublicKey).Curve)
		require.Equal(t, now.Add(-5*time.Minute).UTC(), certificate.NotBefore)
		require.Equal(t, now.Add(3650*24*time.Hour).UTC(), certificate.NotAfter)
		require.Equal(t, 1, certificate.SerialNumber.Sign())
	}
	require.NotEqual(t, chain[0].SerialNumber, chain[1].SerialNumber)
	_, err = leaf.checked(ServerCA, now)
	require.NoError(t, err)
}

func TestNewClientCertificate_IsAcceptedByWhoTrustsTheClientCA(t *testing.T) {
	root, err := newRoot(now)
	require.NoError(t, err)
	clientCA, err := newCA("k3s-client-ca", now, root)
	require.NoError(t, err)

	got, err := NewClientCertificate(clientCA, "someone", []string{"k3s:server"}, time.Hour, now)
	require.NoError(t, err)
	require.Len(t, got.Certificate, 1)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(clientCA.Cert)
	_, err = got.Leaf.Verify(x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, CurrentTime: now})
	require.NoError(t, err)
	require.Equal(t, "someone", got.Leaf.Subject.CommonName)
	require.Equal(t, []string{"k3s:server"}, got.Leaf.Subject.Organization)
	require.False(t, got.Leaf.IsCA)
	require.Equal(t, now.Add(time.Hour).UTC(), got.Leaf.NotAfter)

	long, err := NewClientCertificate(clientCA, "someone", nil, 100*365*24*time.Hour, now)
	require.NoError(t, err)
	require.Equal(t, certificates(t, clientCA.Cert)[0].NotAfter, long.Leaf.NotAfter, "not longer than the CA")

	_, err = NewClientCertificate(KeyPair{}, "someone", nil, time.Hour, now)
	require.Error(t, err, "never self-signed")
}

func TestChecked_RefusesWhatK3sCouldNotUse(t *testing.T) {
	root, err := newRoot(now)
	require.NoError(t, err)
	other, err := newRoot(now)
	require.NoError(t, err)
	client, err := newClientPair(root, "x", nil, time.Hour, now)
	require.NoError(t, err)
	account, err := newServiceAccount()
	require.NoError(t, err)

	for name, tc := range map[string]struct {
		purpose Purpose
		pair    KeyPair
		at      time.Time
		want    string
	}{
		"good":                       {ServerCA, root, now, ""},
		"no certificate":             {ServerCA, KeyPair{Key: root.Key}, now, "tls.crt holds no PEM certificate"},
		"no key":                     {ServerCA, KeyPair{Cert: root.Cert}, now, "tls.key holds no PEM private key"},
		"certificate is garbage":     {ServerCA, KeyPair{Cert: []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), Key: root.Key}, now, "broken certificate"},
		"another key":                {ServerCA, KeyPair{Cert: root.Cert, Key: other.Key}, now, "private key isn't the one"},
		"no CA":                      {ServerCA, client, now, "no certificate authority"},
		"expired":                    {ServerCA, root, now.Add(11 * 365 * 24 * time.Hour), "expired"},
		"service account":            {ServiceAccount, account, now, ""},
		"service account, key alone": {ServiceAccount, KeyPair{Key: account.Key}, now, ""},
		"service account, other key": {ServiceAccount, KeyPair{Cert: account.Cert, Key: root.Key}, now, "isn't the public key"},
		"service account, garbage":   {ServiceAccount, KeyPair{Cert: []byte("x"), Key: account.Key}, now, "no PEM public key"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := tc.pair.checked(tc.purpose, tc.at)
			if tc.want != "" {
				require.ErrorContains(t, err, tc.want)
				return
			}
			require.NoError(t, err)
			require.NotEmpty(t, got.Cert)
		})
	}
}

func TestFingerprint_StaysWhenTheCertificateIsRenewedWithItsKey(t *testing.T) {
	account, err := newServiceAccount()
	require.NoError(t, err)
	one, err := Fingerprint(account.Cert)
	require.NoError(t, err)
	require.Regexp(t, "^[0-9a-f]{64}$", one)
	other, err := newServiceAccount()
	require.NoError(t, err)
	two, err := Fingerprint(other.Cert)
	require.NoError(t, err)
	require.NotEqual(t, one, two)
	_, err = Fingerprint([]byte("nothing"))
	require.Error(t, err)
}

func TestKeyPair_ShowsNothing(t *testing.T) {
	pair := KeyPair{Cert: []byte("certificate"), Key: []byte("5ec2e7")}
	numbers := fmt.Sprintf("%d", []byte("5ec2e7"))
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x"} {
		require.NotContains(t, fmt.Sprintf(verb, pair), "5ec2e7", verb)
		require.NotContains(t, fmt.Sprintf(verb, map[string]any{"a": &pair}), numbers, verb)
	}
	encoded, err := json.Marshal(pair)
	require.NoError(t, err)
	require.Equal(t, `"[redacted key pair]"`, string(encoded))
}

func certificates(t *testing.T, bundle []byte) []*x509.Certificate {
	t.Helper()
	var all []*x509.Certificate
	for rest := bundle; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return all
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		require.NoError(t, err)
		all = append(all, certificate)
	}
}

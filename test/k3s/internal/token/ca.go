package token

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
)

// HashCA is the CA hash of a token: of the bytes as they are if the bundle has
// one certificate, of the root's DER if it is a chain.
func HashCA(bundle []byte) (string, error) {
	certs, err := ParseBundle(bundle)
	if err != nil {
		return "", err
	}
	content := bundle
	if len(certs) > 1 {
		if root := rootOf(certs); root != nil {
			content = root.Raw
		}
	}
	digest := sha256.Sum256(content)
	return hex.EncodeToString(digest[:]), nil
}

// rootOf finds the root that the first certificate chains to; nil if the bundle
// isn't a chain.
func rootOf(certs []*x509.Certificate) *x509.Certificate {
	opts := x509.VerifyOptions{Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool()}
	for _, cert := range certs[1:] {
		if len(cert.AuthorityKeyId) == 0 || bytes.Equal(cert.AuthorityKeyId, cert.SubjectKeyId) {
			opts.Roots.AddCert(cert)
		} else {
			opts.Intermediates.AddCert(cert)
		}
	}
	chains, err := certs[0].Verify(opts)
	if err != nil {
		return nil
	}
	return chains[0][len(chains[0])-1]
}

// ParseBundle reads all certificates of a PEM bundle; there must be one.
func ParseBundle(bundle []byte) ([]*x509.Certificate, error) {
	var certs []*x509.Certificate
	for {
		block, rest := pem.Decode(bundle)
		if block == nil {
			break
		}
		bundle = rest
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		certs = append(certs, cert)
	}
	if len(certs) == 0 {
		return nil, errors.New("data does not contain any valid RSA or ECDSA certificates")
	}
	return certs, nil
}

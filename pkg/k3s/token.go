package k3s

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// Users of the supervisor that a full token can name.
const (
	// ServerUser is the user of the server token.
	ServerUser = "server"

	// NodeUser is the user of the agent token.
	NodeUser = "node"
)

const fullTokenPrefix = "K10"

var (
	errTokenEmpty     = errors.New("token is empty")
	errTokenSpace     = errors.New("token starts or ends with white space, which K3s cuts off when it reads a token file")
	errTokenControl   = errors.New("token holds a control character")
	errTokenFormat    = errors.New("token starts with K10 but isn't of the form K10<CA hash>::<user>:<password>")
	errTokenHash      = errors.New("token's CA hash isn't 64 hexadecimal digits")
	errTokenBootstrap = errors.New("token has the form of a bootstrap token (six characters, a dot, sixteen characters), which no server accepts")
	errTokenFull      = errors.New("token is in the full form K10<CA hash>::<user>:<password>; only the password is wanted")
	errNoCertificate  = errors.New("no PEM certificate found")

	bootstrapToken = regexp.MustCompile(`^[a-z0-9]{6}\.[a-z0-9]{16}$`)
	hexHash        = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// ValidateToken says whether K3s takes password, in the short form, as the token of a server or an agent.
// Errors name the rule that was broken and never quote the token.
func ValidateToken(password string) error {
	switch {
	case password == "":
		return errTokenEmpty
	case strings.TrimSpace(password) != password:
		return errTokenSpace
	case strings.ContainsFunc(password, isControl):
		return errTokenControl
	case bootstrapToken.MatchString(password):
		return errTokenBootstrap
	case strings.HasPrefix(password, fullTokenPrefix):
		if _, _, _, err := ParseToken(password); err != nil {
			return err
		}
		return errTokenFull
	}
	return nil
}

func isControl(r rune) bool {
	return r < ' ' || r == 0x7f
}

// CAHash returns what K3s calls the hash of a cluster's CA, 64 hexadecimal digits, for the PEM bundle that a server
// serves as /cacerts (its server-ca.crt, byte for byte). For one certificate that is the SHA-256 of the bundle's
// bytes; for several it is the SHA-256 of the root of the first certificate's chain, so it outlives a new leaf CA.
func CAHash(bundle []byte) (string, error) {
	certificates, err := parseBundle(bundle)
	if err != nil {
		return "", fmt.Errorf("hashing the CA bundle: %w", err)
	}
	if len(certificates) == 1 {
		return hexSum(bundle), nil
	}
	root, err := rootOf(certificates)
	if err != nil {
		return "", fmt.Errorf("hashing the CA bundle: %w", err)
	}
	return hexSum(root.Raw), nil
}

func hexSum(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func parseBundle(bundle []byte) ([]*x509.Certificate, error) {
	var certificates []*x509.Certificate
	for rest := bundle; ; {
		var block *pem.Block
		block, rest = pem.Decode(rest)
		if block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %d: %w", len(certificates)+1, err)
		}
		certificates = append(certificates, certificate)
	}
	if len(certificates) == 0 {
		return nil, errNoCertificate
	}
	return certificates, nil
}

// rootOf follows the issuers of the first certificate as far as the bundle goes.
func rootOf(certificates []*x509.Certificate) (*x509.Certificate, error) {
	root := certificates[0]
	for range certificates {
		issuer := issuerOf(root, certificates)
		if issuer == nil {
			return root, nil
		}
		root = issuer
	}
	return nil, fmt.Errorf("the chain of certificate %q is a circle", certificates[0].Subject)
}

// issuerOf returns nil for a self-signed certificate and for one whose issuer isn't in the bundle.
func issuerOf(certificate *x509.Certificate, certificates []*x509.Certificate) *x509.Certificate {
	if bytes.Equal(certificate.RawIssuer, certificate.RawSubject) && certificate.CheckSignatureFrom(certificate) == nil {
		return nil
	}
	for _, candidate := range certificates {
		if candidate != certificate && certificate.CheckSignatureFrom(candidate) == nil {
			return candidate
		}
	}
	return nil
}

// FullToken returns the full form of a token, K10<CA hash>::<user>:<password>, with which a machine verifies the
// server that it joins. The password must satisfy [ValidateToken]; user is [ServerUser] or [NodeUser].
func FullToken(caBundle []byte, user, password string) (string, error) {
	if err := ValidateToken(password); err != nil {
		return "", err
	}
	hash, err := CAHash(caBundle)
	if err != nil {
		return "", err
	}
	return fullTokenPrefix + hash + "::" + user + ":" + password, nil
}

// ParseToken takes a token apart. The short form, which is a password alone, has neither CA hash nor user; K3s also
// takes a full form with an empty hash, which verifies nothing.
// Errors never quote the token.
func ParseToken(s string) (caHash, user, password string, err error) {
	if s == "" {
		return "", "", "", errTokenEmpty
	}
	rest, full := strings.CutPrefix(s, fullTokenPrefix)
	if !full {
		return "", "", s, nil
	}
	caHash, credentials, found := strings.Cut(rest, "::")
	if !found {
		return "", "", "", errTokenFormat
	}
	if caHash != "" && !hexHash.MatchString(caHash) {
		return "", "", "", errTokenHash
	}
	user, password, found = strings.Cut(credentials, ":")
	if !found || user == "" || password == "" {
		return "", "", "", errTokenFormat
	}
	return caHash, user, password, nil
}

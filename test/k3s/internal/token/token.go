// Package token knows K3s' token formats.
package token

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
)

const (
	prefix     = "K10"
	caHashSize = sha256.Size * 2
)

var bootstrapToken = regexp.MustCompile(`^[a-z0-9]{6}\.[a-z0-9]{16}$`)

// Token is a parsed token: either user and password, or a bootstrap token.
type Token struct {
	// CAHash is the hash of the cluster's CA, 64 hex characters; may be empty.
	CAHash string
	// User and Password are for Basic authentication.
	User, Password string
	// Bearer is a bootstrap token, `id.secret`.
	Bearer string
}

// Parse reads a short, full or bootstrap token.
func Parse(value string) (Token, error) {
	if value == "" {
		return Token{}, errors.New("token must not be empty")
	}
	if !strings.HasPrefix(value, prefix) {
		if bootstrapToken.MatchString(value) {
			return Token{Bearer: value}, nil
		}
		return Token{Password: value}, nil
	}

	var parsed Token
	credentials := strings.TrimPrefix(value, prefix)
	if hash, rest, found := strings.Cut(credentials, "::"); found {
		if len(hash) > 0 && len(hash) != caHashSize {
			return Token{}, errors.New("invalid token CA hash length")
		}
		parsed.CAHash, credentials = hash, rest
	}
	if bootstrapToken.MatchString(credentials) {
		parsed.Bearer = credentials
		return parsed, nil
	}
	user, password, found := strings.Cut(credentials, ":")
	if !found || password == "" {
		return Token{}, errors.New("invalid token format")
	}
	parsed.User, parsed.Password = user, password
	return parsed, nil
}

// Normalize returns the password of a server token.
func Normalize(value string) (string, error) {
	parsed, err := Parse(value)
	if err != nil || parsed.Bearer != "" {
		return "", errors.New("failed to normalize server token; must be in format K10<CA-HASH>::<USERNAME>:<PASSWORD> or <PASSWORD>")
	}
	return parsed.Password, nil
}

// Format returns the full token for a user, with the hash of a CA bundle.
func Format(user, password string, caBundle []byte) (string, error) {
	hash, err := HashCA(caBundle)
	if err != nil {
		return "", err
	}
	return prefix + hash + "::" + user + ":" + password, nil
}

// KeyHash is the part of a datastore key that stands for a password: 12 hex
// characters.
func KeyHash(password string) string {
	digest := sha256.Sum256([]byte(password))
	return hex.EncodeToString(digest[:])[:12]
}

// ReadFile returns the password in a server/token file.
func ReadFile(path string) (string, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	password, err := Normalize(strings.TrimSpace(string(raw)))
	if err != nil {
		return "", fmt.Errorf("token file %s: %w", path, err)
	}
	return password, nil
}

package bootstrap

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha1"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

const (
	iterations = 4096
	keySize    = 32
)

// Encrypt seals data with a password, in the form that K3s keeps in etcd:
// `salt:base64(nonce || AES-256-GCM)`.
func Encrypt(password string, plain []byte) ([]byte, error) {
	raw := make([]byte, 8)
	_, _ = rand.Read(raw)
	salt := hex.EncodeToString(raw)
	gcm, err := newGCM(password, salt)
	if err != nil {
		return nil, err
	}
	nonce := make([]byte, gcm.NonceSize())
	_, _ = rand.Read(nonce)
	sealed := gcm.Seal(nonce, nonce, plain, nil)
	return []byte(salt + ":" + base64.StdEncoding.EncodeToString(sealed)), nil
}

// Decrypt opens what Encrypt sealed.
func Decrypt(password string, sealed []byte) ([]byte, error) {
	salt, encoded, found := strings.Cut(string(sealed), ":")
	if !found {
		return nil, errors.New("invalid cipher text, not : delimited")
	}
	content, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return nil, err
	}
	gcm, err := newGCM(password, salt)
	if err != nil {
		return nil, err
	}
	if len(content) < gcm.NonceSize() {
		return nil, errors.New("invalid cipher text, too short")
	}
	nonce, box := content[:gcm.NonceSize()], content[gcm.NonceSize():]
	return gcm.Open(nil, nonce, box, nil)
}

func newGCM(password, salt string) (cipher.AEAD, error) {
	key, err := pbkdf2.Key(sha1.New, password, []byte(salt), iterations, keySize)
	if err != nil {
		return nil, fmt.Errorf("derive key: %w", err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

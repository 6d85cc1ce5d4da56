package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

func newKey() (crypto.Signer, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	return key, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

// ParseKey reads the first private key of a PEM file: EC, RSA or PKCS#8.
func ParseKey(raw []byte) (crypto.Signer, error) {
	for block, rest := pem.Decode(raw); block != nil; block, rest = pem.Decode(rest) {
		switch block.Type {
		case "EC PRIVATE KEY":
			return x509.ParseECPrivateKey(block.Bytes)
		case "RSA PRIVATE KEY":
			return x509.ParsePKCS1PrivateKey(block.Bytes)
		case "PRIVATE KEY":
			key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
			if err != nil {
				return nil, err
			}
			signer, ok := key.(crypto.Signer)
			if !ok {
				return nil, errors.New("private key can't sign")
			}
			return signer, nil
		}
	}
	return nil, errors.New("data does not contain a valid RSA or ECDSA private key")
}

// LoadOrCreateKey reads a private key, or creates the file with a new one.
func LoadOrCreateKey(path string) (crypto.Signer, error) {
	raw, err := os.ReadFile(path)
	if err == nil {
		key, err := ParseKey(raw)
		if err != nil {
			return nil, fmt.Errorf("key %s: %w", path, err)
		}
		return key, nil
	}
	if !os.IsNotExist(err) {
		return nil, err
	}
	key, content, err := newKey()
	if err != nil {
		return nil, err
	}
	return key, write(path, content, 0o600)
}

func write(path string, content []byte, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return os.WriteFile(path, content, mode)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

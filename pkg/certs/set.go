package certs

import (
	"bytes"
	"maps"
)

// Set is the key pairs of one cluster. What it returns must not be changed.
type Set struct {
	pairs        map[Purpose]KeyPair
	fingerprints map[string]string
}

func newSet(pairs map[Purpose]KeyPair) (*Set, error) {
	set := &Set{pairs: pairs, fingerprints: make(map[string]string, len(pairs))}
	for purpose, pair := range pairs {
		fingerprint, err := Fingerprint(pair.Cert)
		if err != nil {
			return nil, err
		}
		set.fingerprints[string(purpose)] = fingerprint
	}
	return set, nil
}

// File is a file of the first server.
type File struct {
	// Path is relative to K3s' data directory, which is /var/lib/rancher/k3s unless configured.
	Path string

	// Content of the file.
	Content []byte

	// Mode holds the permission bits.
	Mode uint32
}

// Pair returns the key pair for a purpose; false when the set has none.
func (s *Set) Pair(purpose Purpose) (KeyPair, bool) {
	pair, ok := s.pairs[purpose]
	return pair, ok
}

// ClientCA returns the CA that signs client certificates.
func (s *Set) ClientCA() KeyPair { return s.pairs[ClientCA] }

// ServerCABundle returns, byte for byte, what a server has as its server-ca.crt and serves as /cacerts: the server
// CA followed by what leads to its root.
func (s *Set) ServerCABundle() []byte { return s.pairs[ServerCA].Cert }

// Fingerprints returns the SHA-256 of each public key, by purpose, as [Fingerprint] gives it.
func (s *Set) Fingerprints() map[string]string { return maps.Clone(s.fingerprints) }

// SeedFiles returns the files with which the first server must start so that it uses these CAs. The root's key isn't
// among them.
func (s *Set) SeedFiles() []File {
	const public, private = 0o644, 0o600
	var files []File
	for _, profile := range profiles {
		pair, ok := s.pairs[profile.purpose]
		if !ok {
			continue
		}
		if profile.cert != "" {
			files = append(files, File{Path: tlsPath(profile.cert), Content: bytes.Clone(pair.Cert), Mode: public})
		}
		files = append(files, File{Path: tlsPath(profile.key), Content: bytes.Clone(pair.Key), Mode: private})
	}
	return files
}

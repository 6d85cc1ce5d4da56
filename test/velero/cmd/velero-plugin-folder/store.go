package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// store keeps each object as a file: the bucket is a folder, the key a path in it.
type store struct{ dir string }

// Init takes the folder of all buckets from the location's configuration.
func (s *store) Init(config map[string]string) error {
	if s.dir = config["folder"]; s.dir == "" {
		return errors.New("the location's configuration has no folder")
	}
	return nil
}

func (s *store) path(bucket, key string) string {
	return filepath.Join(s.dir, bucket, filepath.FromSlash(key))
}

// PutObject writes an object whole or not at all.
func (s *store) PutObject(bucket, key string, body io.Reader) error {
	path := s.path(bucket, key)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("making the folder of %s: %w", key, err)
	}
	// Beside the buckets, where no list finds it.
	half, err := os.CreateTemp(s.dir, "half-")
	if err != nil {
		return fmt.Errorf("writing %s: %w", key, err)
	}
	_, err = io.Copy(half, body)
	if err = errors.Join(err, half.Close()); err != nil {
		return fmt.Errorf("writing %s: %w", key, errors.Join(err, os.Remove(half.Name())))
	}
	return os.Rename(half.Name(), path)
}

// ObjectExists tells whether there is an object.
func (s *store) ObjectExists(bucket, key string) (bool, error) {
	_, err := os.Stat(s.path(bucket, key))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// GetObject opens an object.
func (s *store) GetObject(bucket, key string) (io.ReadCloser, error) {
	return os.Open(s.path(bucket, key))
}

// ListCommonPrefixes lists the beginnings that keys have in common, up to the delimiter.
func (s *store) ListCommonPrefixes(bucket, prefix, delimiter string) ([]string, error) {
	keys, err := s.ListObjects(bucket, prefix)
	if err != nil {
		return nil, err
	}
	var prefixes []string
	for _, key := range keys {
		if before, _, found := strings.Cut(key[len(prefix):], delimiter); found {
			prefixes = append(prefixes, prefix+before+delimiter)
		}
	}
	return slices.Compact(prefixes), nil // keys are in order
}

// ListObjects lists the keys that begin with the prefix, in order.
func (s *store) ListObjects(bucket, prefix string) ([]string, error) {
	var keys []string
	root := s.path(bucket, "")
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // an empty bucket, or deleted meanwhile
		}
		if err != nil || entry.IsDir() {
			return err
		}
		key, err := filepath.Rel(root, path)
		if key = filepath.ToSlash(key); strings.HasPrefix(key, prefix) {
			keys = append(keys, key)
		}
		return err
	})
	slices.Sort(keys)
	return keys, err
}

// DeleteObject removes an object; one that isn't there is fine.
func (s *store) DeleteObject(bucket, key string) error {
	if err := os.Remove(s.path(bucket, key)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// CreateSignedURL is for downloads by the velero command line, which a folder has none for.
func (s *store) CreateSignedURL(string, string, time.Duration) (string, error) {
	return "", errors.New("a folder has no URLs")
}

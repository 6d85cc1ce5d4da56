package main

import (
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vmware-tanzu/velero/pkg/plugin/velero"
)

const bucket = "bucket"

func newStore(t *testing.T) velero.ObjectStore {
	t.Helper()
	s := &store{}
	require.NoError(t, s.Init(map[string]string{"folder": t.TempDir()}))
	return s
}

func put(t *testing.T, s velero.ObjectStore, key, body string) {
	t.Helper()
	require.NoError(t, s.PutObject(bucket, key, strings.NewReader(body)))
}

func TestInit_AsksForAFolder(t *testing.T) {
	require.ErrorContains(t, (&store{}).Init(map[string]string{}), "folder")
}

func TestStore_KeepsWhatWasPutLast(t *testing.T) {
	s := newStore(t)
	put(t, s, "backups/a/log.gz", "old")
	put(t, s, "backups/a/log.gz", "new")

	body, err := s.GetObject(bucket, "backups/a/log.gz")
	require.NoError(t, err)
	content, err := io.ReadAll(body)
	require.NoError(t, err)
	require.NoError(t, body.Close())
	require.Equal(t, "new", string(content))
}

func TestStore_KnowsWhatExists(t *testing.T) {
	s := newStore(t)
	put(t, s, "backups/a/log.gz", "")
	for key, want := range map[string]bool{"backups/a/log.gz": true, "backups/b/log.gz": false} {
		exists, err := s.ObjectExists(bucket, key)
		require.NoError(t, err)
		require.Equalf(t, want, exists, key)
	}
	for range 2 { // what is gone can be deleted
		require.NoError(t, s.DeleteObject(bucket, "backups/a/log.gz"))
		exists, err := s.ObjectExists(bucket, "backups/a/log.gz")
		require.NoError(t, err)
		require.False(t, exists)
	}
}

func TestStore_Lists(t *testing.T) {
	s := newStore(t)
	keys, err := s.ListObjects(bucket, "")
	require.NoError(t, err)
	require.Empty(t, keys, "of a bucket that nothing was put in")
	for _, key := range []string{"backups/b/x", "backups/a/y", "backups/a/x", "restores/a/x", "backups/top"} {
		put(t, s, key, "")
	}

	keys, err = s.ListObjects(bucket, "backups/a/")
	require.NoError(t, err)
	require.Equal(t, []string{"backups/a/x", "backups/a/y"}, keys)
	prefixes, err := s.ListCommonPrefixes(bucket, "backups/", "/")
	require.NoError(t, err)
	require.Equal(t, []string{"backups/a/", "backups/b/"}, prefixes)
}

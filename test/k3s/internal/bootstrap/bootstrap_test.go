package bootstrap

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/capk3s/capk3s/test/k3s/internal/pki"
)

func TestDecrypt_OpensWhatEncryptSealed(t *testing.T) {
	sealed, err := Encrypt("abc", []byte("secret"))
	require.NoError(t, err)
	assert.Regexp(t, `^[0-9a-f]{16}:[A-Za-z0-9+/=]+$`, string(sealed))
	plain, err := Decrypt("abc", sealed)
	require.NoError(t, err)
	assert.Equal(t, "secret", string(plain))
	_, err = Decrypt("other", sealed)
	assert.Error(t, err)
	_, err = Decrypt("abc", []byte("nonsense"))
	assert.Error(t, err)
}

func TestOpen_TellsAnotherTokenFromNoData(t *testing.T) {
	sealed, err := seal("abc", Data{"ServerCA": {Content: []byte("x")}})
	require.NoError(t, err)
	entries := map[string][]byte{Key("abc"): sealed}

	data, err := Open(entries, "abc")
	require.NoError(t, err)
	assert.Equal(t, "x", string(data["ServerCA"].Content))
	_, err = Open(entries, "def")
	assert.ErrorIs(t, err, ErrOtherToken)
	for name, entries := range map[string]map[string][]byte{"nothing": nil, "claimed": {Key("abc"): nil}} {
		data, err = Open(entries, "abc")
		assert.NoError(t, err, name)
		assert.Nil(t, data, name)
	}
}

// onDisk makes a server's shared files, all with the same time.
func onDisk(t *testing.T, made time.Time) (pki.Files, Data) {
	t.Helper()
	files := pki.NewFiles(t.TempDir())
	data := Data{}
	for name, path := range paths(files) {
		data[name] = File{Timestamp: made, Content: []byte(name)}
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	}
	require.NoError(t, data.ToDisk(files))
	return files, data
}

func TestReconcile(t *testing.T) {
	made := time.Now().Add(-time.Hour).Truncate(time.Second)
	for name, row := range map[string]struct {
		content string
		time    time.Time
		newer   bool
		want    string
	}{
		"same content, newer file":  {"ServerCA", made.Add(time.Minute), false, "ServerCA"},
		"other content, newer file": {"changed", made.Add(3 * time.Second), true, "changed"},
		"other content, older file": {"changed", made.Add(2 * time.Second), false, "ServerCA"},
	} {
		t.Run(name, func(t *testing.T) {
			files, data := onDisk(t, made)
			require.NoError(t, os.WriteFile(files.ServerCA, []byte(row.content), 0o600))
			require.NoError(t, os.Chtimes(files.ServerCA, row.time, row.time))
			err := data.Reconcile(files)
			if row.newer {
				var newer *NewerError
				require.ErrorAs(t, err, &newer)
				assert.Equal(t, []string{files.ServerCA}, newer.Files)
			} else {
				require.NoError(t, err)
			}
			got, err := os.ReadFile(files.ServerCA)
			require.NoError(t, err)
			assert.Equal(t, row.want, string(got))
		})
	}
}

func TestReconcile_OverwritesEverythingIfAFolderIsEmpty(t *testing.T) {
	files, data := onDisk(t, time.Now().Add(-time.Hour))
	require.NoError(t, os.WriteFile(files.ServerCA, []byte("seeded"), 0o600))
	require.NoError(t, os.RemoveAll(files.CredDir))
	require.NoError(t, data.Reconcile(files))
	got, err := os.ReadFile(files.ServerCA)
	require.NoError(t, err)
	assert.Equal(t, "ServerCA", string(got))
}

func TestReadOffline_TakesTheLastRevisionOfEachKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	db, err := bbolt.Open(path, 0o600, nil)
	require.NoError(t, err)
	require.NoError(t, db.Update(func(tx *bbolt.Tx) error {
		bucket, err := tx.CreateBucket([]byte("key"))
		if err != nil {
			return err
		}
		for i, entry := range []struct{ key, value, suffix string }{
			{"/bootstrap/a", "old", ""},
			{"/bootstrap/a", "new", ""},
			{"/registry/x", "y", ""},
			{"/bootstrap/b", "gone", ""},
			{"/bootstrap/b", "", "t"},
		} {
			raw, err := (&mvccpb.KeyValue{Key: []byte(entry.key), Value: []byte(entry.value)}).Marshal()
			if err != nil {
				return err
			}
			revision := append([]byte{0, 0, 0, 0, 0, 0, 0, byte(i + 1), '_', 0, 0, 0, 0, 0, 0, 0, 0}, entry.suffix...)
			if err := bucket.Put(revision, raw); err != nil {
				return err
			}
		}
		return nil
	}))
	require.NoError(t, db.Close())

	entries, err := ReadOffline(path)
	require.NoError(t, err)
	assert.Equal(t, map[string][]byte{"/bootstrap/a": []byte("new")}, entries)

	entries, err = ReadOffline(path + "-missing")
	assert.NoError(t, err)
	assert.Empty(t, entries)
}

package bootstrap

import (
	"fmt"
	"os"
	"strings"
	"time"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// tombstoneLen is the size of an etcd revision key that marks a deletion.
const tombstoneLen = 18

// ReadOffline reads the entries under the bootstrap prefix from the database of
// an etcd that doesn't run. A database that isn't there has none.
func ReadOffline(dbFile string) (map[string][]byte, error) {
	if _, err := os.Stat(dbFile); os.IsNotExist(err) {
		return nil, nil
	}
	db, err := bbolt.Open(dbFile, 0o600, &bbolt.Options{ReadOnly: true, Timeout: 10 * time.Second})
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", dbFile, err)
	}
	defer func() { _ = db.Close() }()

	entries := map[string][]byte{}
	err = db.View(func(tx *bbolt.Tx) error {
		bucket := tx.Bucket([]byte("key"))
		if bucket == nil {
			return nil
		}
		// Revisions come in order, so the last word on a key wins.
		return bucket.ForEach(func(revision, value []byte) error {
			var kv mvccpb.KeyValue
			if err := kv.Unmarshal(value); err != nil {
				return err
			}
			if !strings.HasPrefix(string(kv.Key), keyPrefix) {
				return nil
			}
			if len(revision) == tombstoneLen {
				delete(entries, string(kv.Key))
			} else {
				entries[string(kv.Key)] = kv.Value
			}
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", dbFile, err)
	}
	return entries, nil
}

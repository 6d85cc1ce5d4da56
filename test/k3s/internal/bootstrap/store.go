package bootstrap

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/capk3s/capk3s/test/k3s/internal/token"
)

// keyPrefix is where the data lies in etcd, followed by the password's hash.
const keyPrefix = "/bootstrap/"

// ErrOtherToken means that the cluster's data is encrypted with another token.
var ErrOtherToken = errors.New("bootstrap data already found and encrypted with different token")

// Key is the data's key in etcd.
func Key(password string) string { return keyPrefix + token.KeyHash(password) }

// Load reads and decrypts the cluster's data; nil if there is none yet.
func Load(ctx context.Context, etcd *clientv3.Client, password string) (Data, error) {
	data, _, err := read(ctx, etcd, password)
	return data, err
}

// read is [Load] with the revision of the entry, 0 if there is none.
func read(ctx context.Context, etcd *clientv3.Client, password string) (data Data, revision int64, err error) {
	resp, err := etcd.Get(ctx, keyPrefix, clientv3.WithPrefix())
	if err != nil {
		return nil, 0, err
	}
	sealed := map[string][]byte{}
	for _, kv := range resp.Kvs {
		sealed[string(kv.Key)] = kv.Value
		if string(kv.Key) == Key(password) {
			revision = kv.ModRevision
		}
	}
	data, err = Open(sealed, password)
	return data, revision, err
}

// Open picks the entry for the password out of all that lie under the prefix,
// and decrypts it; nil if there are none, or none yet.
func Open(sealed map[string][]byte, password string) (Data, error) {
	if len(sealed) == 0 {
		return nil, nil
	}
	entry, found := sealed[Key(password)]
	if !found {
		return nil, ErrOtherToken
	}
	if len(entry) == 0 {
		return nil, nil // claimed by a server that hasn't made the data yet
	}
	raw, err := Decrypt(password, entry)
	if err != nil {
		return nil, fmt.Errorf("decrypt bootstrap data: %w", err)
	}
	return Parse(raw)
}

// Save stores the data if the cluster has none yet.
func Save(ctx context.Context, etcd *clientv3.Client, password string, data Data) error {
	existing, revision, err := read(ctx, etcd, password)
	if err != nil || existing != nil {
		return err
	}
	sealed, err := seal(password, data)
	if err != nil {
		return err
	}
	_, err = put(ctx, etcd, password, sealed, revision)
	return err
}

// put writes the entry if its revision is still the one given, 0 for none. This
// is the form of a transaction that kine takes.
func put(ctx context.Context, etcd *clientv3.Client, password string, sealed []byte, revision int64) (bool, error) {
	key := Key(password)
	resp, err := etcd.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(key), "=", revision)).
		Then(clientv3.OpPut(key, string(sealed))).
		Else(clientv3.OpGet(key)).
		Commit()
	if err != nil {
		return false, err
	}
	return resp.Succeeded, nil
}

// Rotate stores the data under a new password, then drops the old entry. Like
// [put] it keeps to what kine takes.
func Rotate(ctx context.Context, etcd *clientv3.Client, oldPassword, newPassword string, data Data) error {
	sealed, err := seal(newPassword, data)
	if err != nil {
		return err
	}
	if _, err := etcd.Put(ctx, Key(newPassword), string(sealed)); err != nil {
		return err
	}
	if oldPassword == newPassword {
		return nil
	}
	old := Key(oldPassword)
	_, err = etcd.Txn(ctx).Then(clientv3.OpGet(old), clientv3.OpDelete(old)).Commit()
	return err
}

func seal(password string, data Data) ([]byte, error) {
	raw, err := json.Marshal(data)
	if err != nil {
		return nil, err
	}
	return Encrypt(password, raw)
}

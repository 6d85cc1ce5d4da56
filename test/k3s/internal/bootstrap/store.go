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
	resp, err := etcd.Get(ctx, keyPrefix, clientv3.WithPrefix())
	if err != nil {
		return nil, err
	}
	sealed := map[string][]byte{}
	for _, kv := range resp.Kvs {
		sealed[string(kv.Key)] = kv.Value
	}
	return Open(sealed, password)
}

// Open picks the entry for the password out of all that lie under the prefix,
// and decrypts it; nil if there are none.
func Open(sealed map[string][]byte, password string) (Data, error) {
	if len(sealed) == 0 {
		return nil, nil
	}
	entry, found := sealed[Key(password)]
	if !found {
		return nil, ErrOtherToken
	}
	raw, err := Decrypt(password, entry)
	if err != nil {
		return nil, fmt.Errorf("decrypt bootstrap data: %w", err)
	}
	return Parse(raw)
}

// Save stores the data if the cluster has none yet.
func Save(ctx context.Context, etcd *clientv3.Client, password string, data Data) error {
	existing, err := Load(ctx, etcd, password)
	if err != nil || existing != nil {
		return err
	}
	sealed, err := seal(password, data)
	if err != nil {
		return err
	}
	_, err = etcd.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(Key(password)), "=", 0)).
		Then(clientv3.OpPut(Key(password), string(sealed))).
		Commit()
	return err
}

// Rotate stores the data under a new password and drops the old entry.
func Rotate(ctx context.Context, etcd *clientv3.Client, oldPassword, newPassword string, data Data) error {
	sealed, err := seal(newPassword, data)
	if err != nil {
		return err
	}
	ops := []clientv3.Op{clientv3.OpPut(Key(newPassword), string(sealed))}
	if oldPassword != newPassword {
		ops = append(ops, clientv3.OpDelete(Key(oldPassword)))
	}
	_, err = etcd.Txn(ctx).Then(ops...).Commit()
	return err
}

func seal(password string, data Data) ([]byte, error) {
	raw, err := json.Marshal(data)
	if err != nil {
		return nil, err
	}
	return Encrypt(password, raw)
}

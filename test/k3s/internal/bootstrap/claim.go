package bootstrap

import (
	"context"
	"time"

	"github.com/sirupsen/logrus"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// What K3s does while another server makes the cluster's data.
const (
	claimInterval = 5 * time.Second
	claimAttempts = 5
)

// Claim returns the data of a cluster whose servers share a datastore. Without
// any, nil, the caller is the one who makes them: an empty entry makes the other
// servers wait, for as long as K3s would.
func Claim(ctx context.Context, etcd *clientv3.Client, password string) (Data, error) {
	for attempt := 0; ; attempt++ {
		data, revision, err := read(ctx, etcd, password)
		if err != nil || data != nil {
			return data, err
		}
		if revision == 0 || attempt >= claimAttempts {
			mine, err := put(ctx, etcd, password, nil, revision)
			if err != nil || mine {
				return nil, err
			}
			continue
		}
		logrus.Infof("Bootstrap key is locked - waiting for data to be populated by another server")
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(claimInterval):
		}
	}
}

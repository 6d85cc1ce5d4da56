// Package datastore opens the database that a server was given with
// datastore-endpoint: an etcd, or through kine a database of another kind.
package datastore

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/k3s-io/kine/pkg/endpoint"
	"github.com/k3s-io/kine/pkg/tls"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/capk3s/capk3s/test/k3s/internal/config"
)

// How kine is set up, with K3s' defaults.
const (
	notifyInterval  = 5 * time.Second
	compactInterval = 5 * time.Minute
	compactTimeout  = 5 * time.Second
	compactRetain   = 1000
	compactBatch    = 1000
	pollBatch       = 500
	dialTimeout     = 5 * time.Second

	// etcdVersion is what kine calls itself, so that kube-apiserver uses watches as with etcd.
	etcdVersion = "3.6.11"
)

// Access is how kube-apiserver reaches a datastore.
type Access struct {
	// Servers are etcd's URLs; kine's is a socket's.
	Servers []string
	// CAFile, CertFile and KeyFile may be empty.
	CAFile, CertFile, KeyFile string
}

// External is a datastore outside of the server.
type External struct {
	Access
	// Client talks to it.
	Client *clientv3.Client
	// Shared tells whether several servers may use it.
	Shared bool
}

// Open connects to the datastore until the context ends.
func Open(ctx context.Context, server *config.Server, serverDir string) (*External, error) {
	etcd, err := endpoint.Listen(ctx, endpoint.Config{
		Listener:            "unix://" + filepath.Join(serverDir, "kine.sock"),
		Endpoint:            server.DatastoreEndpoint,
		BackendTLSConfig:    tls.Config{CAFile: server.DatastoreCAFile, CertFile: server.DatastoreCertFile, KeyFile: server.DatastoreKeyFile},
		NotifyInterval:      notifyInterval,
		EmulatedETCDVersion: etcdVersion,
		CompactInterval:     compactInterval,
		CompactTimeout:      compactTimeout,
		CompactMinRetain:    compactRetain,
		CompactBatchSize:    compactBatch,
		PollBatchSize:       pollBatch,
	})
	if err != nil {
		return nil, fmt.Errorf("creating storage endpoint: %w", err)
	}
	tlsConfig, err := etcd.TLSConfig.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("reading the datastore's TLS files: %w", err)
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints: etcd.Endpoints, DialTimeout: dialTimeout, TLS: tlsConfig, Logger: zap.NewNop(), Context: ctx,
	})
	if err != nil {
		return nil, fmt.Errorf("connecting to the datastore: %w", err)
	}
	return &External{
		Access: Access{Servers: etcd.Endpoints, CAFile: etcd.TLSConfig.CAFile, CertFile: etcd.TLSConfig.CertFile, KeyFile: etcd.TLSConfig.KeyFile},
		Client: client,
		Shared: etcd.LeaderElect,
	}, nil
}

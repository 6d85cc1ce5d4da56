// Package etcd runs the embedded etcd of a K3s server: it founds or joins a
// cluster, promotes learners, removes members, and notices its own removal.
package etcd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/capk3s/capk3s/test/k3s/internal/client"
	"github.com/capk3s/capk3s/test/k3s/internal/config"
	"github.com/capk3s/capk3s/test/k3s/internal/datastore"
	"github.com/capk3s/capk3s/test/k3s/internal/pki"
)

// Endpoint is where a server's own etcd listens.
const Endpoint = "https://127.0.0.1:2379"

const testTimeout = 10 * time.Second

// Options are what an etcd server needs to know.
type Options struct {
	// Control is the server's configuration.
	Control *config.Control
	// Files are the certificates.
	Files pki.Files
	// Standalone stands in for SQLite: one member, never joined by others.
	Standalone bool
	// External is used in the place of an etcd of its own; nil for none.
	External *datastore.External
	// ExtraArgs are `key=value` pairs for etcd's configuration file.
	ExtraArgs []string
	// ExposeMetrics serves metrics on the node's address too.
	ExposeMetrics bool
	// LearnerTick is how often the leader looks at learners and members.
	LearnerTick time.Duration
	// Report is called by the leader at each tick with the members' states.
	Report func(context.Context, []MemberStatus)
	// Shutdown ends the process in an orderly way, with exit code 0.
	Shutdown func(error)
}

// Server is the embedded etcd of this machine.
type Server struct {
	opts    Options
	dir     string
	name    string
	address string
	client  *clientv3.Client
	events  *eventLog

	mu      sync.Mutex
	running *embed.Etcd
	stopped chan struct{}
}

// Dir returns the folder of etcd's data below <data-dir>/server.
func Dir(serverDir string) string { return filepath.Join(serverDir, "db", "etcd") }

// StandaloneDir returns the folder of the stand-in for SQLite.
func StandaloneDir(serverDir string) string { return filepath.Join(serverDir, "db", "sqlite-stand-in") }

// IsInitialized tells whether an etcd was started with this data before.
func IsInitialized(serverDir string) bool {
	info, err := os.Stat(filepath.Join(Dir(serverDir), "member", "wal"))
	return err == nil && info.IsDir()
}

// New prepares etcd: it honours a tombstone and settles the member's name.
func New(opts Options) (*Server, error) {
	s := &Server{
		opts:    opts,
		dir:     Dir(opts.Control.DataDir),
		address: opts.Control.PrivateIP,
		events:  &eventLog{path: EventLogFile},
		stopped: make(chan struct{}),
	}
	if opts.External != nil {
		s.client = opts.External.Client
		return s, nil
	}
	if opts.Standalone {
		s.dir = StandaloneDir(opts.Control.DataDir)
		s.address = "127.0.0.1"
		if err := markSQLite(opts.Control.DataDir); err != nil {
			return nil, err
		}
	} else if err := s.checkTombstone(); err != nil {
		return nil, err
	}
	if err := s.setName(); err != nil {
		return nil, err
	}
	var err error
	s.client, err = s.newClient(Endpoint)
	return s, err
}

// markSQLite leaves the file that tells others that K3s uses SQLite.
func markSQLite(serverDir string) error {
	path := filepath.Join(serverDir, "db", "state.db")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDONLY, 0o600)
	if err != nil {
		return err
	}
	return file.Close()
}

func (s *Server) tombstone() string { return filepath.Join(s.dir, "tombstone") }

// checkTombstone clears the data of a removed member that may rejoin, and
// refuses to start one that may not.
func (s *Server) checkTombstone() error {
	if _, err := os.Stat(s.tombstone()); os.IsNotExist(err) {
		return nil
	} else if err != nil {
		return err
	}
	if s.opts.Control.JoinURL == "" {
		return errors.New("tombstone file has been detected but --server is empty: backup and delete ${datadir}/server/db to create a new cluster, or set --server to rejoin the cluster")
	}
	logrus.Infof("tombstone file has been detected, removing ${datadir}/server/db to rejoin the cluster")
	return os.Rename(s.dir, fmt.Sprintf("%s-backup-%d", s.dir, time.Now().Unix()))
}

// setName reads the member's name, or makes one up.
func (s *Server) setName() error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	raw, err := os.ReadFile(s.nameFile())
	if err == nil {
		s.name = string(raw)
		return nil
	}
	if !os.IsNotExist(err) {
		return err
	}
	s.name = s.opts.Control.ServerNodeName + "-" + config.RandomHex(4)
	return os.WriteFile(s.nameFile(), []byte(s.name), 0o600)
}

func (s *Server) nameFile() string { return filepath.Join(s.dir, "name") }

// Name is the member's name.
func (s *Server) Name() string { return s.name }

// Address is the address that the member is known by.
func (s *Server) Address() string { return s.address }

// Client talks to this machine's own member.
func (s *Server) Client() *clientv3.Client { return s.client }

// Managed tells whether this is an etcd of the server's own, with members.
func (s *Server) Managed() bool { return !s.opts.Standalone && s.opts.External == nil }

// Shared tells whether other servers may use the same datastore.
func (s *Server) Shared() bool {
	if s.opts.External != nil {
		return s.opts.External.Shared
	}
	return !s.opts.Standalone
}

// Access is how kube-apiserver reaches the datastore.
func (s *Server) Access() datastore.Access {
	if s.opts.External != nil {
		return s.opts.External.Access
	}
	cert, key := s.opts.Files.Leaf("etcd/client")
	return datastore.Access{Servers: []string{Endpoint}, CAFile: s.opts.Files.ETCDServerCA, CertFile: cert, KeyFile: key}
}

func (s *Server) peerURL() string   { return "https://" + s.address + ":2380" }
func (s *Server) clientURL() string { return "https://" + s.address + ":2379" }

func (s *Server) newClient(endpoints ...string) (*clientv3.Client, error) {
	certFile, keyFile := s.opts.Files.Leaf("etcd/client")
	cert, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("etcd client certificate: %w", err)
	}
	bundle, err := os.ReadFile(s.opts.Files.ETCDServerCA)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(bundle)
	return clientv3.New(clientv3.Config{
		Endpoints:            endpoints,
		DialTimeout:          2 * time.Second,
		DialKeepAliveTime:    30 * time.Second,
		DialKeepAliveTimeout: 10 * time.Second,
		TLS:                  &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12},
		Logger:               quietLogger(),
		// etcd starts late on a joining server; don't sleep through that.
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 200 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: 2 * time.Second,
		})},
	})
}

// Start brings etcd up: with the data it has, as a new cluster, or, if join is
// given, as a new member in the background. A datastore outside runs already.
func (s *Server) Start(ctx context.Context, join *client.Client) error {
	if s.opts.External != nil {
		return nil
	}
	if !s.opts.Standalone {
		go s.manageMembers(ctx)
	}
	if !s.opts.Standalone && IsInitialized(s.opts.Control.DataDir) {
		return s.run(ctx, "", "")
	}
	if s.opts.Standalone || join == nil {
		return s.run(ctx, s.name+"="+s.peerURL(), "new")
	}
	go s.joinUntilDone(ctx, join)
	return nil
}

// run starts etcd, and watches it until it stops.
func (s *Server) run(ctx context.Context, cluster, state string) error {
	file, err := s.writeConfig(cluster, state)
	if err != nil {
		return fmt.Errorf("write etcd configuration: %w", err)
	}
	cfg, err := embed.ConfigFromFile(file)
	if err != nil {
		return fmt.Errorf("read etcd configuration: %w", err)
	}
	running, err := embed.StartEtcd(cfg)
	if err != nil {
		return fmt.Errorf("start etcd: %w", err)
	}
	s.mu.Lock()
	s.running = running
	s.mu.Unlock()
	s.log(Event{Event: EventStart})
	go s.supervise(ctx, running)
	go s.watch(ctx, running)
	return nil
}

// supervise waits for the end of etcd. One that stops without being asked to
// was removed from the cluster.
func (s *Server) supervise(ctx context.Context, running *embed.Etcd) {
	defer close(s.stopped)
	select {
	case <-ctx.Done():
		s.log(Event{Event: EventStop})
		running.Close()
		return
	case err := <-running.Err():
		logrus.Fatalf("etcd listener failed: %v", err)
	case <-running.Server.StopNotify():
	}
	if err := os.WriteFile(s.tombstone(), nil, 0o600); err != nil {
		logrus.Fatalf("failed to write tombstone file: %v", err)
	}
	s.log(Event{Event: EventStop})
	running.Close()
	s.mu.Lock()
	s.running = nil
	s.mu.Unlock()
	logrus.Infof("This node has been removed from the cluster - please restart k3s to rejoin the cluster")
}

// Wait returns when etcd has stopped after the context's end, or after a while.
func (s *Server) Wait(atMost time.Duration) {
	s.mu.Lock()
	running := s.running
	s.mu.Unlock()
	if running == nil {
		return
	}
	select {
	case <-s.stopped:
	case <-time.After(atMost):
	}
}

// Test returns nil if this machine's etcd is a voting member with a leader, or
// the datastore outside answers.
func (s *Server) Test(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, testTimeout)
	defer cancel()
	if s.opts.External != nil {
		_, err := s.client.Get(ctx, "/registry/health")
		return err
	}
	status, err := s.client.Status(ctx, Endpoint)
	if err != nil {
		return err
	}
	if status.IsLearner {
		return errors.New("this server has not yet been promoted from learner to voting member")
	}
	if status.Leader == 0 {
		return errors.New("etcdserver: no leader")
	}
	members, err := s.client.MemberList(ctx)
	if err != nil {
		return err
	}
	var found []string
	for _, member := range members.Members {
		for _, url := range member.PeerURLs {
			if member.Name == s.name && url == s.peerURL() {
				return nil
			}
		}
		found = append(found, member.Name+"="+strings.Join(member.PeerURLs, ","))
	}
	return fmt.Errorf("this server is a not a member of the etcd cluster. Found %v, expect: %s=%s", found, s.name, s.address)
}

// logChange writes down what was done to a member.
func (s *Server) logChange(event string, member *etcdserverpb.Member) {
	s.log(Event{Event: event, Target: label(member.Name, member.PeerURLs), TargetID: member.ID})
}

// log writes an event down, with the members that this server knows of.
func (s *Server) log(entry Event) {
	entry.Member = s.name
	s.mu.Lock()
	running := s.running
	s.mu.Unlock()
	if running != nil {
		entry.Voters, entry.Learners = split(running.Server.Cluster().Members())
	}
	s.events.append(entry)
}

package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
)

const dialTimeout = 5 * time.Second

// balancer is an agent's local port towards the servers: it prefers the servers
// that the cluster names, and falls back to the one that was configured.
type balancer struct {
	stateFile string
	fallback  string

	mu      sync.Mutex
	servers []string
	// open are the connections by server, so that those to a server that leaves
	// can be closed.
	open map[string]map[net.Conn]struct{}
}

type balancerState struct {
	ServerURL       string
	ServerAddresses []string
}

// newBalancer listens on the loopback. What it knew at its last run it still
// knows.
func newBalancer(dataDir, serverURL string, port int) (*balancer, string, error) {
	parsed, err := url.Parse(serverURL)
	if err != nil {
		return nil, "", err
	}
	fallback := parsed.Host
	if parsed.Port() == "" {
		fallback = net.JoinHostPort(parsed.Hostname(), "443")
	}
	b := &balancer{
		stateFile: filepath.Join(dataDir, "agent", "etc", "k3s-agent-load-balancer.json"),
		fallback:  fallback,
		open:      map[string]map[net.Conn]struct{}{},
	}
	b.load(serverURL)
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return nil, "", err
	}
	logrus.Infof("Running load balancer k3s-agent-load-balancer %s -> %v [default: %s]", listener.Addr(), b.servers, fallback)
	go b.accept(listener)
	return b, "https://" + listener.Addr().String(), nil
}

func (b *balancer) load(serverURL string) {
	raw, err := os.ReadFile(b.stateFile)
	if err != nil {
		return
	}
	var state balancerState
	if err := json.Unmarshal(raw, &state); err == nil && state.ServerURL == serverURL {
		b.servers = state.ServerAddresses
	}
}

// setServers names the cluster's servers, and cuts connections to others.
func (b *balancer) setServers(serverURL string, servers []string) error {
	servers = slices.Sorted(slices.Values(servers))
	b.mu.Lock()
	if slices.Equal(b.servers, servers) {
		b.mu.Unlock()
		return nil
	}
	b.servers = servers
	for address, conns := range b.open {
		if slices.Contains(servers, address) {
			continue
		}
		for conn := range conns {
			_ = conn.Close()
		}
	}
	b.mu.Unlock()
	logrus.Infof("Updated load balancer k3s-agent-load-balancer server addresses -> %v [default: %s]", servers, b.fallback)
	raw, err := json.Marshal(balancerState{ServerURL: serverURL, ServerAddresses: servers})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(b.stateFile), 0o755); err != nil {
		return err
	}
	return os.WriteFile(b.stateFile, raw, 0o600)
}

func (b *balancer) accept(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			logrus.Errorf("Load balancer stopped: %v", err)
			return
		}
		go b.serve(conn)
	}
}

func (b *balancer) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	server, address, err := b.dial()
	if err != nil {
		logrus.Debugf("Load balancer failed to dial: %v", err)
		return
	}
	b.track(address, server, true)
	defer b.track(address, server, false)
	defer func() { _ = server.Close() }()
	go func() {
		_, _ = io.Copy(server, conn)
		_ = server.Close()
	}()
	_, _ = io.Copy(conn, server)
}

// dial tries the servers in turn; one that doesn't answer goes to the end.
func (b *balancer) dial() (net.Conn, string, error) {
	b.mu.Lock()
	candidates := slices.Clone(b.servers)
	b.mu.Unlock()
	if !slices.Contains(candidates, b.fallback) {
		candidates = append(candidates, b.fallback)
	}
	var errs []error
	for _, address := range candidates {
		conn, err := net.DialTimeout("tcp", address, dialTimeout)
		if err == nil {
			return conn, address, nil
		}
		errs = append(errs, err)
		b.demote(address)
	}
	return nil, "", errors.Join(errs...)
}

func (b *balancer) demote(address string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.Index(b.servers, address); i >= 0 {
		b.servers = append(slices.Delete(slices.Clone(b.servers), i, i+1), address)
	}
}

func (b *balancer) track(address string, conn net.Conn, open bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !open {
		delete(b.open[address], conn)
		return
	}
	if b.open[address] == nil {
		b.open[address] = map[net.Conn]struct{}{}
	}
	b.open[address][conn] = struct{}{}
}

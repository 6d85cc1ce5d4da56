// Package agent is the node half of K3s: the join handshake with a supervisor,
// the tunnel to every server, and the kubelet's stand-in.
package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/sirupsen/logrus"
	"k8s.io/client-go/rest"

	"github.com/capk3s/capk3s/test/k3s/internal/client"
	"github.com/capk3s/capk3s/test/k3s/internal/config"
	"github.com/capk3s/capk3s/test/k3s/internal/node"
)

const (
	validateRetry   = 2 * time.Second
	configRetry     = 5 * time.Second
	serversInterval = 10 * time.Second
)

// Agent joins a node to a cluster.
type Agent struct {
	cfg *config.Config
	// supervisor is the URL that requests go to, configured the one in logs.
	supervisor, configured string
	token                  string
	balancer               *balancer
	// Registered is closed when the Node is there.
	Registered chan struct{}
}

// New prepares the agent of `k3s agent`, which reaches the servers through a
// local port.
func New(cfg *config.Config) (*Agent, error) {
	a := &Agent{cfg: cfg, configured: cfg.JoinURL, token: cfg.Token, Registered: make(chan struct{})}
	if a.token == "" && a.clientCertificate() == nil {
		return nil, errors.New("--token is required")
	}
	if cfg.JoinURL == "" {
		return nil, errors.New("--server is required")
	}
	if len(cfg.NodeLabels) > 0 || len(cfg.NodeTaints) > 0 {
		// The kubelet refuses bad labels and taints at its start.
		if _, err := node.NewSpec(cfg, true); err != nil {
			return nil, fmt.Errorf("kubelet exited: %w", err)
		}
	}
	balancer, local, err := newBalancer(cfg.DataDir, cfg.JoinURL, cfg.LBPort)
	if err != nil {
		return nil, err
	}
	a.balancer, a.supervisor = balancer, local
	return a, nil
}

// NewLocal prepares the agent inside a server, which joins the server itself.
func NewLocal(cfg *config.Config, token string) *Agent {
	url := fmt.Sprintf("https://127.0.0.1:%d", cfg.Server.Control.SupervisorPort)
	return &Agent{cfg: cfg, supervisor: url, configured: url, token: token, Registered: make(chan struct{})}
}

// Run joins the node, and keeps it in the cluster until the context ends.
// register is false for a server that runs no agent: its tunnels stay, its Node
// isn't made.
func (a *Agent) Run(ctx context.Context, register bool) error {
	if !retry(ctx, validateRetry, false, func() error {
		if _, err := a.newClient(); err != nil {
			logrus.Errorf("Failed to validate connection to cluster at %s: %v", a.configured, err)
			return err
		}
		return nil
	}) {
		return ctx.Err()
	}
	var control *config.Control
	if !retry(ctx, configRetry, true, func() (err error) {
		if control, err = a.handshake(); err != nil {
			logrus.Infof("Waiting to retrieve agent configuration; server is not ready: %v", err)
		}
		return err
	}) {
		return ctx.Err()
	}
	servers := &tunnels{cancel: map[string]context.CancelFunc{}}
	if err := a.waitForServers(ctx, servers); err != nil {
		return err
	}
	go a.followServers(ctx, servers)
	if !register {
		return nil
	}
	return a.startKubelet(ctx, control)
}

func (a *Agent) startKubelet(ctx context.Context, control *config.Control) error {
	spec, err := node.NewSpec(a.cfg, control.DisableCCM)
	if err != nil {
		return fmt.Errorf("kubelet exited: %w", err)
	}
	kubelet, err := node.NewKubelet(spec, &rest.Config{
		Host: a.supervisor,
		TLSClientConfig: rest.TLSClientConfig{
			CAFile:   a.path("server-ca.crt"),
			CertFile: a.path("client-kubelet.crt"),
			KeyFile:  a.path("client-kubelet.key"),
		},
	})
	if err != nil {
		return err
	}
	if err := kubelet.Register(ctx); err != nil {
		return err
	}
	close(a.Registered)
	go kubelet.Run(ctx)
	return nil
}

// waitForServers waits for a cluster that is ready, and for the addresses of its
// kube-apiservers.
func (a *Agent) waitForServers(ctx context.Context, servers *tunnels) error {
	if !retry(ctx, configRetry, false, func() error {
		supervisor, err := a.certClient()
		if err == nil {
			_, err = supervisor.Get(api + "/readyz")
		}
		if err == nil {
			_, err = getConfig(supervisor)
		}
		if err != nil {
			logrus.Infof("Waiting to retrieve kube-proxy configuration; server is not ready: %v", err)
		}
		return err
	}) {
		return ctx.Err()
	}
	if !retry(ctx, configRetry, false, func() error {
		addresses, err := a.apiServers()
		if err != nil {
			logrus.Infof("Failed to retrieve list of apiservers from server: %v", err)
			return err
		}
		if len(addresses) == 0 {
			logrus.Infof("Waiting for supervisor to provide apiserver addresses")
			return errors.New("no apiserver addresses")
		}
		return a.useServers(ctx, servers, addresses)
	}) {
		return ctx.Err()
	}
	return nil
}

// followServers notices servers that come and go.
func (a *Agent) followServers(ctx context.Context, servers *tunnels) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(serversInterval):
		}
		addresses, err := a.apiServers()
		if err != nil || len(addresses) == 0 {
			continue
		}
		if err := a.useServers(ctx, servers, addresses); err != nil {
			logrus.Errorf("Failed to update server addresses: %v", err)
		}
	}
}

func (a *Agent) apiServers() ([]string, error) {
	supervisor, err := a.certClient()
	if err != nil {
		return nil, err
	}
	raw, err := supervisor.Get(api + "/apiservers")
	if err != nil {
		return nil, err
	}
	var addresses []string
	return addresses, json.Unmarshal(raw, &addresses)
}

// certClient talks to the supervisor with what the handshake brought.
func (a *Agent) certClient() (*client.Client, error) {
	bundle, err := os.ReadFile(a.path("server-ca.crt"))
	if err != nil {
		return nil, err
	}
	return &client.Client{URL: a.supervisor, CACerts: bundle, Certificate: a.clientCertificate()}, nil
}

func (a *Agent) useServers(ctx context.Context, servers *tunnels, addresses []string) error {
	if a.balancer != nil {
		if err := a.balancer.setServers(a.cfg.JoinURL, addresses); err != nil {
			return err
		}
	}
	if servers.tlsConfig == nil {
		supervisor, err := a.certClient()
		if err != nil {
			return err
		}
		servers.tlsConfig = supervisor.TLSConfig()
	}
	servers.set(ctx, addresses)
	return nil
}

// retry calls until there is no error; it tells whether that happened before the
// context's end. With jitter the pause is up to twice as long.
func retry(ctx context.Context, pause time.Duration, jitter bool, call func() error) bool {
	for {
		if call() == nil {
			return true
		}
		wait := pause
		if jitter {
			wait += rand.N(pause)
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(wait):
		}
	}
}

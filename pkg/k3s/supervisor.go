package k3s

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"
)

const (
	// supervisorTimeout bounds one request. A healthy supervisor answers /db/info within its own 2 s limit.
	supervisorTimeout = 4 * time.Second

	// supervisorTries is how often a failed read is tried: behind the endpoint there may be a server that is
	// starting or was removed, and the next connection reaches another one.
	supervisorTries = 3

	// supervisorBodyLimit bounds an answer, in bytes. A bootstrap answer has about 30 kB.
	supervisorBodyLimit = 4 << 20
)

// StatusError is an answer of the supervisor other than 200.
type StatusError struct {
	// Code is the HTTP status code.
	Code int
	// Path is the path that was asked.
	Path string
}

// Error names the path and the status code.
func (e *StatusError) Error() string {
	return fmt.Sprintf("GET %s: the K3s supervisor answered %d %s", e.Path, e.Code, http.StatusText(e.Code))
}

// Member is a member of a K3s cluster's etcd, as /db/info lists it.
type Member struct {
	ID         uint64   `json:"ID"`
	Name       string   `json:"name"`
	PeerURLs   []string `json:"peerURLs"`
	ClientURLs []string `json:"clientURLs"`
	IsLearner  bool     `json:"isLearner"`
}

// Started says whether the member has joined; until then etcd knows neither its name nor its client URLs.
func (m Member) Started() bool {
	return m.Name != ""
}

// BootstrapFile is one file of the answer to /v1-k3s/server-bootstrap.
type BootstrapFile struct {
	Timestamp time.Time `json:"Timestamp"`
	Content   []byte    `json:"Content"`
}

// Bootstrap is what a server gives to one that joins: the CAs with their keys and the password file, keyed as
// K3s keys them (ServerCA, ServerCAKey, PasswdFile, ...).
type Bootstrap map[string]BootstrapFile

// Supervisor talks to the K3s supervisor behind a cluster's endpoint. It keeps its connections; it is safe for
// concurrent use.
type Supervisor struct {
	endpoint  string
	withCert  *http.Client
	anonymous *http.Client
}

// FetchCACerts reads the CA bundle (PEM) that the supervisor at endpoint (host:port) offers. Nothing verifies the
// server: compare the bundle with a fingerprint before trusting it.
func FetchCACerts(ctx context.Context, endpoint string) ([]byte, error) {
	// The answer is what the caller verifies.
	unverified := newHTTPClient(&tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}) //nolint:gosec // see above
	defer unverified.CloseIdleConnections()
	return (&Supervisor{endpoint: endpoint}).get(ctx, unverified, "/cacerts", nil)
}

// NewSupervisor returns a client for the supervisor at endpoint (host:port), which must present a certificate of
// the CAs in serverCAs (PEM). The certificate identifies the caller and must have the organization k3s:server;
// without one only the methods that take a token can be used.
func NewSupervisor(endpoint string, serverCAs []byte, certificate tls.Certificate) (*Supervisor, error) {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(serverCAs) {
		return nil, errors.New("the server CA bundle holds no PEM certificate")
	}
	return &Supervisor{
		endpoint: endpoint,
		withCert: newHTTPClient(&tls.Config{
			RootCAs: roots, MinVersion: tls.VersionTLS12,
			Certificates: []tls.Certificate{certificate},
		}),
		anonymous: newHTTPClient(&tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}),
	}, nil
}

func newHTTPClient(tlsConfig *tls.Config) *http.Client {
	return &http.Client{
		Timeout: supervisorTimeout,
		Transport: &http.Transport{
			TLSClientConfig: tlsConfig,
			// HTTP/1.1: a request that must reach another server needs a connection of its own.
			ForceAttemptHTTP2:   false,
			MaxIdleConnsPerHost: 1,
			IdleConnTimeout:     90 * time.Second,
		},
	}
}

// Close closes the idle connections.
func (s *Supervisor) Close() {
	s.withCert.CloseIdleConnections()
	s.anonymous.CloseIdleConnections()
}

// Ready returns nil when a kube-apiserver behind the endpoint is ready.
func (s *Supervisor) Ready(ctx context.Context) error {
	_, err := s.get(ctx, s.withCert, "/readyz", nil)
	return err
}

// Members lists the etcd members. An answer proves that etcd has its quorum.
func (s *Supervisor) Members(ctx context.Context) ([]Member, error) {
	body, err := s.getWithRetry(ctx, s.withCert, "/db/info", nil)
	if err != nil {
		return nil, err
	}
	var info struct {
		Members []Member `json:"members"`
	}
	if err := json.Unmarshal(body, &info); err != nil {
		return nil, fmt.Errorf("decoding the answer to /db/info: %w", err)
	}
	return info.Members, nil
}

// ServerBootstrap reads what a joining server gets.
func (s *Supervisor) ServerBootstrap(ctx context.Context) (Bootstrap, error) {
	return decodeBootstrap(s.getWithRetry(ctx, s.withCert, "/v1-k3s/server-bootstrap", nil))
}

// ServerBootstrapByToken reads what a joining server gets, with a server token (the password alone) instead of
// the certificate.
func (s *Supervisor) ServerBootstrapByToken(ctx context.Context, token string) (Bootstrap, error) {
	return decodeBootstrap(s.getWithRetry(ctx, s.anonymous, "/v1-k3s/server-bootstrap",
		func(r *http.Request) { r.SetBasicAuth("server", token) }))
}

func decodeBootstrap(body []byte, err error) (Bootstrap, error) {
	if err != nil {
		return nil, err
	}
	bootstrap := Bootstrap{}
	if err := json.Unmarshal(body, &bootstrap); err != nil {
		// The cause would quote the answer, which holds keys.
		return nil, errors.New("the answer to /v1-k3s/server-bootstrap is not what K3s sends")
	}
	return bootstrap, nil
}

// AcceptsToken says whether the servers accept a server token (the password alone), with whatever datastore. An
// error means that no server could be asked.
func (s *Supervisor) AcceptsToken(ctx context.Context, token string) (bool, error) {
	_, err := s.getWithRetry(ctx, s.anonymous, "/db/info", func(r *http.Request) { r.SetBasicAuth("server", token) })
	var status *StatusError
	switch {
	case err == nil:
		return true, nil
	case !errors.As(err, &status):
		return false, err
	case status.Code == http.StatusUnauthorized:
		return false, nil
	case status.Code == http.StatusBadRequest:
		// "etcd datastore disabled", which only those hear who may ask.
		return true, nil
	default:
		return false, err
	}
}

// getWithRetry tries again on a new connection when the server that answered can't serve.
func (s *Supervisor) getWithRetry(ctx context.Context, c *http.Client, path string, prepare func(*http.Request)) ([]byte, error) {
	var lastErr error
	for range supervisorTries {
		body, err := s.get(ctx, c, path, prepare)
		if err == nil {
			return body, nil
		}
		lastErr = err
		var status *StatusError
		if !errors.As(err, &status) || status.Code < http.StatusInternalServerError {
			return nil, err
		}
		c.CloseIdleConnections()
	}
	return nil, lastErr
}

func (s *Supervisor) get(ctx context.Context, c *http.Client, path string, prepare func(*http.Request)) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+s.endpoint+path, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("making the request for %s: %w", path, err)
	}
	if prepare != nil {
		prepare(req)
	}
	res, err := c.Do(req)
	if err != nil {
		return nil, fmt.Errorf("asking the K3s supervisor at %s: %w", s.endpoint, withoutAddresses(err))
	}
	body, readErr := io.ReadAll(io.LimitReader(res.Body, supervisorBodyLimit))
	if err := errors.Join(readErr, res.Body.Close()); err != nil {
		return nil, fmt.Errorf("reading the answer to %s: %w", path, err)
	}
	if res.StatusCode != http.StatusOK {
		return nil, &StatusError{Code: res.StatusCode, Path: path}
	}
	return body, nil
}

// withoutAddresses drops the local port from a network error: the text becomes a condition, which must not change
// with each try.
func withoutAddresses(err error) error {
	var network *net.OpError
	switch {
	case errors.As(err, &network):
		return fmt.Errorf("%s: %w", network.Op, network.Err)
	case os.IsTimeout(err):
		return errors.New("no answer in time")
	}
	var request *url.Error
	if errors.As(err, &request) {
		return request.Err
	}
	return err
}

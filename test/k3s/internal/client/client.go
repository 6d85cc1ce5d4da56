// Package client is how servers and agents talk to a supervisor they join.
package client

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/capk3s/capk3s/test/k3s/internal/token"
)

const timeout = 10 * time.Second

// Client is a validated connection to a supervisor.
type Client struct {
	// URL is the supervisor's, without a trailing slash.
	URL string
	// CACerts is the bundle that the server's certificate is checked with;
	// empty if the host's own CAs vouch for it.
	CACerts []byte
	// User and Password authenticate, unless Bearer is set.
	User, Password string
	// Bearer is a bootstrap token.
	Bearer string
	// Certificate, if any, authenticates too.
	Certificate *tls.Certificate
}

// Options change how a token is used.
type Options struct {
	// User overrides the token's user.
	User string
	// CACerts, if not empty, is trusted instead of what the server hands out.
	CACerts []byte
	// Certificate is shown to the server.
	Certificate *tls.Certificate
}

// New parses the token, fetches the server's CA bundle and checks it against
// the token's hash. The password isn't checked here. Without a token there must
// be a certificate.
func New(server, value string, opts Options) (*Client, error) {
	var parsed token.Token
	if value != "" || opts.Certificate == nil {
		var err error
		if parsed, err = token.Parse(value); err != nil {
			return nil, err
		}
	}
	base, err := url.Parse(server)
	if err != nil {
		return nil, fmt.Errorf("Invalid server url, failed to parse: %s: %w", server, err) //nolint:staticcheck // K3s' text
	}
	if base.Scheme != "https" {
		return nil, errors.New("only https:// URLs are supported, invalid scheme: " + server)
	}
	c := &Client{
		URL:         strings.TrimRight(base.String(), "/"),
		CACerts:     opts.CACerts,
		User:        parsed.User,
		Password:    parsed.Password,
		Bearer:      parsed.Bearer,
		Certificate: opts.Certificate,
	}
	if opts.User != "" && c.Password != "" {
		c.User = opts.User
	}
	if len(c.CACerts) == 0 {
		if c.CACerts, err = fetchCACerts(c.URL + "/cacerts"); err != nil {
			return nil, err
		}
	}
	return c, checkHash(parsed.CAHash, c.CACerts)
}

// fetchCACerts asks three times, as K3s does: trusting the host's CAs, trusting
// anything, and trusting what came back.
func fetchCACerts(address string) ([]byte, error) {
	public := &Client{}
	if _, err := public.do(http.MethodGet, address, nil, nil, &http.Transport{DisableKeepAlives: true}); err == nil {
		return nil, nil
	}
	insecure := &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // the bundle is checked by its hash
	}
	bundle, err := public.do(http.MethodGet, address, nil, nil, insecure)
	if err != nil {
		return nil, fmt.Errorf("failed to get CA certs: %w", err)
	}
	if _, err := public.do(http.MethodGet, address, nil, nil, transport(bundle, nil)); err != nil {
		return nil, fmt.Errorf("CA cert validation failed: %w", err)
	}
	return bundle, nil
}

func checkHash(want string, bundle []byte) error {
	switch {
	case want != "" && len(bundle) == 0:
		logrus.Warn("Cluster CA certificate is trusted by the host CA bundle. Token CA hash will not be validated.")
	case want == "" && len(bundle) > 0:
		logrus.Warn("Cluster CA certificate is not trusted by the host CA bundle, but the token does not include a CA hash. " +
			"Use the full token from the server's node-token file to enable Cluster CA validation.")
	case want != "":
		got, err := token.HashCA(bundle)
		if err != nil {
			return err
		}
		if got != want {
			return fmt.Errorf("token CA hash does not match the Cluster CA certificate hash: %s != %s", want, got)
		}
	}
	return nil
}

// TLSConfig trusts the cluster's CA, and shows the certificate if there is one.
func (c *Client) TLSConfig() *tls.Config { return transport(c.CACerts, c.Certificate).TLSClientConfig }

func transport(bundle []byte, cert *tls.Certificate) *http.Transport {
	tlsConfig := &tls.Config{MinVersion: tls.VersionTLS12}
	if len(bundle) > 0 {
		tlsConfig.RootCAs = x509.NewCertPool()
		tlsConfig.RootCAs.AppendCertsFromPEM(bundle)
	}
	if cert != nil {
		tlsConfig.Certificates = []tls.Certificate{*cert}
	}
	return &http.Transport{DisableKeepAlives: true, TLSClientConfig: tlsConfig}
}

// Get reads a path below the server's URL.
func (c *Client) Get(path string) ([]byte, error) {
	return c.do(http.MethodGet, c.URL+path, nil, nil, transport(c.CACerts, c.Certificate))
}

// Post sends a body to a path below the server's URL.
func (c *Client) Post(path string, body []byte, header http.Header) ([]byte, error) {
	return c.do(http.MethodPost, c.URL+path, body, header, transport(c.CACerts, c.Certificate))
}

func (c *Client) do(method, address string, body []byte, header http.Header, rt http.RoundTripper) ([]byte, error) {
	req, err := http.NewRequest(method, address, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if header != nil {
		req.Header = header.Clone()
	}
	if c.Bearer != "" {
		req.Header.Set("Authorization", "Bearer "+c.Bearer)
	} else if c.User != "" {
		req.SetBasicAuth(c.User, c.Password)
	}
	httpClient := &http.Client{Timeout: timeout, Transport: rt}
	resp, err := httpClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return nil, statusError(address, resp, content)
	}
	return content, nil
}

// Error is an answer that isn't a success.
type Error struct {
	// Code is the HTTP status.
	Code int
	// Message is what the server's Status object says, or the status line.
	Message string
}

// Error returns the message alone, as K3s shows it.
func (e *Error) Error() string { return e.Message }

func statusError(address string, resp *http.Response, content []byte) error {
	var status struct {
		Kind    string `json:"kind"`
		Message string `json:"message"`
	}
	if err := json.Unmarshal(content, &status); err == nil && status.Kind == "Status" && status.Message != "" {
		return &Error{Code: resp.StatusCode, Message: status.Message}
	}
	return &Error{Code: resp.StatusCode, Message: fmt.Sprintf("%s: %s", address, resp.Status)}
}

// IsCode tells whether an error is an answer with that HTTP status.
func IsCode(err error, code int) bool {
	var answer *Error
	return errors.As(err, &answer) && answer.Code == code
}

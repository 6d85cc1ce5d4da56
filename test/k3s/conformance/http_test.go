//go:build conformance

package conformance

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/capk3s/capk3s/test/k3s/internal/pki"
)

// answer is what an HTTP request came to.
type answer struct {
	code   int
	header http.Header
	body   string
}

// status is the answer's Status object.
func (a answer) status(t *testing.T) map[string]any {
	t.Helper()
	var status map[string]any
	require.NoError(t, json.Unmarshal([]byte(a.body), &status), a.body)
	return status
}

// caller makes requests in some role. The server's certificate isn't checked,
// unless roots is set.
type caller struct {
	user, password string
	bearer         string
	cert           *tls.Certificate
	roots          *x509.CertPool
	serverName     string
	// from, if set, is the machine that the request is made on.
	from *machine
}

func (c caller) client() *http.Client {
	config := &tls.Config{InsecureSkipVerify: c.roots == nil, RootCAs: c.roots, ServerName: c.serverName}
	if c.cert != nil {
		config.Certificates = []tls.Certificate{*c.cert}
	}
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true, DisableKeepAlives: true}
	if c.from != nil {
		transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			return dialOn(ctx, c.from, network, address)
		}
	}
	return &http.Client{Timeout: 15 * time.Second, Transport: transport}
}

func (c caller) request(method, url string, body io.Reader) (answer, error) {
	req, err := http.NewRequest(method, url, body)
	if err != nil {
		return answer{}, err
	}
	if c.user != "" {
		req.SetBasicAuth(c.user, c.password)
	}
	if c.bearer != "" {
		req.Header.Set("Authorization", "Bearer "+c.bearer)
	}
	resp, err := c.client().Do(req)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	content, err := io.ReadAll(resp.Body)
	return answer{code: resp.StatusCode, header: resp.Header, body: string(content)}, err
}

func (c caller) do(t *testing.T, method, url string, body string) answer {
	t.Helper()
	got, err := c.request(method, url, strings.NewReader(body))
	require.NoError(t, err)
	return got
}

func (c caller) get(t *testing.T, url string) answer {
	t.Helper()
	return c.do(t, http.MethodGet, url, "")
}

// dialOn opens a connection from a machine: the socket belongs to the network
// that its thread is in when it is made.
func dialOn(ctx context.Context, m *machine, network, address string) (net.Conn, error) {
	type result struct {
		conn net.Conn
		err  error
	}
	done := make(chan result)
	go func() {
		// The thread isn't unlocked: it ends with this goroutine.
		runtime.LockOSThread()
		file, err := os.Open(filepath.Join("/run/netns", m.name))
		if err != nil {
			done <- result{err: err}
			return
		}
		defer func() { _ = file.Close() }()
		if err := unix.Setns(int(file.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- result{err: err}
			return
		}
		var dialer net.Dialer
		conn, err := dialer.DialContext(ctx, network, address)
		done <- result{conn, err}
	}()
	r := <-done
	return r.conn, r.err
}

// url is an address of the machine's supervisor, seen from the network.
func (m *machine) url(path string) string { return "https://" + m.ip + ":6443" + path }

// local is the same on the machine's loopback.
func local(path string) string { return "https://127.0.0.1:6443" + path }

// mint signs a client certificate with the cluster's client CA.
func (m *machine) mint(t *testing.T, name string, organizations ...string) *tls.Certificate {
	t.Helper()
	return m.mintWith(t, "client-ca", name, organizations...)
}

// mintWith signs a client certificate with a CA of the machine.
func (m *machine) mintWith(t *testing.T, caName, name string, organizations ...string) *tls.Certificate {
	t.Helper()
	ca, err := pki.LoadCA(m.server("tls", caName+".crt"), m.server("tls", caName+".key"))
	require.NoError(t, err)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	chain, err := ca.Sign(pki.Request{
		CommonName: name, Organization: organizations, Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, key.Public())
	require.NoError(t, err)
	der, err := x509.MarshalECPrivateKey(key)
	require.NoError(t, err)
	cert, err := tls.X509KeyPair(chain, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}))
	require.NoError(t, err)
	return &cert
}

// admin is the certificate of system:admin.
func (m *machine) admin(t *testing.T) *tls.Certificate {
	t.Helper()
	cert, err := tls.LoadX509KeyPair(m.server("tls", "client-admin.crt"), m.server("tls", "client-admin.key"))
	require.NoError(t, err)
	return &cert
}

// connect sends a CONNECT request over HTTP/1.1 and returns the connection and
// the head of the answer.
func connect(t *testing.T, server *machine, cert *tls.Certificate, header, target string) (*tls.Conn, *bufio.Reader, answer) {
	t.Helper()
	config := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}}
	if cert != nil {
		config.Certificates = []tls.Certificate{*cert}
	}
	conn, err := tls.Dial("tcp", server.ip+":6443", config)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
	_, err = fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n%s\r\n", target, target, header)
	require.NoError(t, err)
	reader := bufio.NewReader(conn)
	resp, err := http.ReadResponse(reader, &http.Request{Method: http.MethodConnect})
	require.NoError(t, err)
	got := answer{code: resp.StatusCode, header: resp.Header}
	if len(resp.TransferEncoding) > 0 {
		got.header.Set("Transfer-Encoding", resp.TransferEncoding[0])
	}
	if resp.StatusCode != http.StatusOK {
		raw, err := io.ReadAll(io.LimitReader(reader, max(resp.ContentLength, 0)))
		require.NoError(t, err)
		got.body = string(raw)
	}
	return conn, reader, got
}

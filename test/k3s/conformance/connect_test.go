//go:build conformance

package conformance

import (
	"bufio"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// connectRows are the CONNECT requests of section 5; other is another member.
func connectRows(t *testing.T, server, other *machine) {
	admin := server.admin(t)
	for _, target := range []string{"127.0.0.1:2379", server.ip + ":2379", other.ip + ":2379"} {
		conn, reader, got := connect(t, server, admin, "", target)
		require.Equal(t, 200, got.code, target)
		assert.NotEmpty(t, got.header.Get("Date"))
		assert.Equal(t, "chunked", got.header.Get("Transfer-Encoding"))
		peer := etcdThrough(t, server, conn, reader)
		assert.Equal(t, "etcd-server", peer, target)
	}

	_, _, got := connect(t, server, admin, "", "127.0.0.1:1")
	assert.Equal(t, 502, got.code)
	status := got.status(t)
	assert.Equal(t, "dial tcp 127.0.0.1:1: connect: connection refused", status["message"])
	assert.Equal(t, "InternalError", status["reason"])

	_, _, got = connect(t, server, admin, "", "localhost:2379")
	assert.Equal(t, 502, got.code)
	assert.Equal(t, "failed to find Session for client localhost", got.status(t)["message"])

	// A name is reached by the node's tunnel, whatever is behind it. The tunnel
	// comes up after the server.
	eventually(t, 30*time.Second, func() error {
		if _, _, got := connect(t, server, admin, "", other.name+":10250"); got.code != 200 {
			return fmt.Errorf("CONNECT %s:10250: %d %s", other.name, got.code, got.body)
		}
		return nil
	})

	basic := "Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte("server:"+password)) + "\r\n"
	for name, row := range map[string]struct {
		cert   *tls.Certificate
		header string
	}{
		"nobody":        {nil, ""},
		"server token":  {nil, basic},
		"a node":        {server.mint(t, "system:node:x", "system:nodes"), ""},
		"without group": {server.mint(t, "someone"), ""},
	} {
		_, _, got := connect(t, server, row.cert, row.header, "127.0.0.1:2379")
		assert.Equal(t, 403, got.code, name)
		assert.Equal(t, "forbidden", got.status(t)["message"], name)
	}

	conn, err := tls.Dial("tcp", server.ip+":6443", &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2", "http/1.1"}})
	require.NoError(t, err)
	assert.Equal(t, "h2", conn.ConnectionState().NegotiatedProtocol, "a client that offers h2 gets it")
	_ = conn.Close()
}

// etcdThrough does etcd's TLS handshake through a connection, and returns the
// name of the peer.
func etcdThrough(t *testing.T, m *machine, conn net.Conn, reader *bufio.Reader) string {
	t.Helper()
	cert, err := tls.LoadX509KeyPair(m.server("tls", "etcd", "client.crt"), m.server("tls", "etcd", "client.key"))
	require.NoError(t, err)
	inner := tls.Client(bufferedConn{conn, reader}, &tls.Config{
		InsecureSkipVerify: true, Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2"},
	})
	require.NoError(t, inner.Handshake())
	state := inner.ConnectionState()
	assert.Equal(t, uint16(tls.VersionTLS13), state.Version)
	assert.Equal(t, "h2", state.NegotiatedProtocol)
	return state.PeerCertificates[0].Subject.CommonName
}

// bufferedConn reads what the reader has buffered first.
type bufferedConn struct {
	net.Conn
	reader *bufio.Reader
}

func (c bufferedConn) Read(p []byte) (int, error) { return c.reader.Read(p) }

package proxy_test

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/capk3s/capk3s/test/sandbox/proxy"
)

// server answers each connection with its name and then keeps it open.
func server(t *testing.T, name string) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { conn.Close() })
			_, _ = conn.Write([]byte(name))
		}
	}()
	return listener
}

func newProxy(t *testing.T) (*proxy.Proxy, func() (net.Conn, string)) {
	t.Helper()
	// The address of a listener that was just closed is free.
	free := server(t, "")
	address := free.Addr().String()
	require.NoError(t, free.Close())
	p, err := proxy.Listen(address)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p, func() (net.Conn, string) {
		conn, err := net.Dial("tcp", address)
		require.NoError(t, err)
		t.Cleanup(func() { conn.Close() })
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(5*time.Second)))
		buffer := make([]byte, 1)
		n, _ := conn.Read(buffer)
		return conn, string(buffer[:n])
	}
}

func TestProxy_SpreadsConnections(t *testing.T) {
	p, connect := newProxy(t)
	p.SetBackends([]string{server(t, "a").Addr().String(), server(t, "b").Addr().String()})
	seen := map[string]int{}
	for range 10 {
		_, name := connect()
		seen[name]++
	}
	require.Equal(t, map[string]int{"a": 5, "b": 5}, seen)
}

func TestProxy_TriesAnotherBackendWhenOneRefuses(t *testing.T) {
	p, connect := newProxy(t)
	dead := server(t, "dead")
	require.NoError(t, dead.Close())
	p.SetBackends([]string{dead.Addr().String(), server(t, "a").Addr().String()})
	for range 4 {
		_, name := connect()
		require.Equal(t, "a", name)
	}
}

func TestProxy_ClosesConnectionsOfABackendThatIsRemoved(t *testing.T) {
	p, connect := newProxy(t)
	a, b := server(t, "a").Addr().String(), server(t, "b").Addr().String()
	p.SetBackends([]string{a})
	conn, name := connect()
	require.Equal(t, "a", name)
	p.SetBackends([]string{b})
	_, err := conn.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	_, name = connect()
	require.Equal(t, "b", name)
}

func TestProxy_ClosesConnectionsOfABackendThatDied(t *testing.T) {
	p, connect := newProxy(t)
	a := server(t, "a")
	p.SetBackends([]string{a.Addr().String()})
	conn, name := connect()
	require.Equal(t, "a", name)
	require.NoError(t, a.Close(), "the listener is gone, the connection stays, as with a machine that is cut off")
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(20*time.Second)))
	_, err := conn.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
}

func TestProxy_ClosesWithoutBackends(t *testing.T) {
	_, connect := newProxy(t)
	_, name := connect()
	require.Empty(t, name)
}

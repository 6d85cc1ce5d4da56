package supervisor

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"

	"github.com/gorilla/websocket"
	"github.com/sirupsen/logrus"

	"github.com/capk3s/capk3s/test/k3s/internal/config"
)

// tunnel keeps the agents' sessions, and connects CONNECT requests. There is no
// kubelet behind a session, so nothing ever travels through one.
type tunnel struct {
	control *config.Control
	mu      sync.Mutex
	// sessions counts the open sessions by node name.
	sessions map[string]int
}

func newTunnel(control *config.Control) *tunnel {
	return &tunnel{control: control, sessions: map[string]int{}}
}

// connect holds an agent's session open.
func (t *tunnel) connect(w http.ResponseWriter, r *http.Request, who *identity) {
	node, ok := strings.CutPrefix(who.name, nodeUserPrefix)
	if !ok {
		sendError(w, r, http.StatusUnauthorized, errNotAuthorized)
		return
	}
	upgrader := websocket.Upgrader{CheckOrigin: func(*http.Request) bool { return true }}
	conn, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		logrus.Debugf("Failed to upgrade tunnel of %s: %v", node, err)
		return
	}
	defer func() { _ = conn.Close() }()
	logrus.Infof("Handling backend connection request [%s]", node)
	t.count(node, 1)
	defer t.count(node, -1)
	for {
		if _, _, err := conn.NextReader(); err != nil {
			return
		}
	}
}

func (t *tunnel) count(node string, by int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sessions[node] += by
}

func (t *tunnel) hasSession(node string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sessions[node] > 0
}

// dial answers a CONNECT request: raw bytes in both directions after a 200.
func (t *tunnel) dial(w http.ResponseWriter, r *http.Request, _ *identity) {
	backend, err := t.backend(r.Context(), r.Host)
	if err != nil {
		sendError(w, r, http.StatusBadGateway, err)
		return
	}
	defer func() { _ = backend.Close() }()
	hijacker, ok := w.(http.Hijacker)
	if !ok {
		sendError(w, r, http.StatusInternalServerError, fmt.Errorf("hijacking not supported"))
		return
	}
	w.WriteHeader(http.StatusOK)
	conn, buffered, err := hijacker.Hijack()
	if err != nil {
		logrus.Debugf("Failed to take over CONNECT connection: %v", err)
		return
	}
	done := make(chan struct{})
	go func() {
		_, _ = io.Copy(backend, buffered)
		_ = backend.Close()
		close(done)
	}()
	_, _ = io.Copy(conn, backend)
	_ = conn.Close()
	<-done
}

// backend dials an address directly; a name is a node, reached by its session.
func (t *tunnel) backend(ctx context.Context, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if net.ParseIP(host) == nil {
		if host != t.control.ServerNodeName {
			return t.session(host)
		}
		address = net.JoinHostPort(t.control.BindAddress, port)
	}
	var dialer net.Dialer
	return dialer.DialContext(ctx, "tcp", address)
}

// session returns a connection to a node's kubelet, which isn't there: it ends
// at once.
func (t *tunnel) session(node string) (net.Conn, error) {
	if !t.hasSession(node) {
		return nil, fmt.Errorf("failed to find Session for client %s", node)
	}
	near, far := net.Pipe()
	_ = far.Close()
	return near, nil
}

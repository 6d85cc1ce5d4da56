package agent

import (
	"context"
	"crypto/tls"
	"sync"
	"time"

	"github.com/gorilla/websocket"
	"github.com/sirupsen/logrus"
)

const pingInterval = 5 * time.Second

// tunnels keeps one session to each server.
type tunnels struct {
	tlsConfig *tls.Config
	mu        sync.Mutex
	cancel    map[string]context.CancelFunc
}

// set opens sessions to new servers and closes those to servers that left.
func (t *tunnels) set(ctx context.Context, addresses []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	wanted := map[string]bool{}
	for _, address := range addresses {
		wanted[address] = true
		if _, open := t.cancel[address]; open {
			continue
		}
		session, cancel := context.WithCancel(ctx)
		t.cancel[address] = cancel
		go t.keep(session, address)
	}
	for address, cancel := range t.cancel {
		if !wanted[address] {
			cancel()
			delete(t.cancel, address)
		}
	}
}

func (t *tunnels) keep(ctx context.Context, address string) {
	for ctx.Err() == nil {
		if err := t.session(ctx, address); err != nil && ctx.Err() == nil {
			logrus.Debugf("Remotedialer proxy error; reconnecting to %s: %v", address, err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pingInterval):
		}
	}
}

// session connects and pings until something fails.
func (t *tunnels) session(ctx context.Context, address string) error {
	dialer := websocket.Dialer{TLSClientConfig: t.tlsConfig.Clone(), HandshakeTimeout: 10 * time.Second}
	conn, resp, err := dialer.DialContext(ctx, "wss://"+address+api+"/connect", nil)
	if err != nil {
		return err
	}
	_ = resp.Body.Close()
	defer func() { _ = conn.Close() }()
	logrus.Infof("Remotedialer connected to proxy wss://%s%s/connect", address, api)
	failed := make(chan error, 1)
	go func() {
		for {
			if _, _, err := conn.NextReader(); err != nil {
				failed <- err
				return
			}
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return err
		case <-time.After(pingInterval):
			if err := conn.WriteControl(websocket.PingMessage, nil, time.Now().Add(pingInterval)); err != nil {
				return err
			}
		}
	}
}

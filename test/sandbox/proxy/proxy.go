// Package proxy is the control plane endpoint of a sandbox cluster: a TCP proxy
// that spreads connections over the machines that answer.
package proxy

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"sync"
	"time"
)

// Timing of the health checks. A backend is out after two checks that fail, and
// back after one that succeeds.
const (
	checkInterval = time.Second
	dialTimeout   = time.Second
	failures      = 2
)

// Proxy accepts connections at one address and passes each on to a backend.
type Proxy struct {
	listener net.Listener
	stop     context.CancelFunc

	mu       sync.Mutex
	backends map[string]*backend
	next     int
}

// backend is one address that connections are passed on to.
type backend struct {
	address string
	failed  int
	// connections of clients and to the backend; closed when it is out.
	connections map[io.Closer]struct{}
	cancel      context.CancelFunc
}

// Listen opens the address and begins to accept connections; without backends
// they are closed at once.
func Listen(address string) (*Proxy, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("opening endpoint %s: %w", address, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &Proxy{listener: listener, stop: cancel, backends: map[string]*backend{}}
	go p.accept(ctx)
	return p, nil
}

// Close ends the proxy and its connections.
func (p *Proxy) Close() {
	p.stop()
	p.listener.Close()
	p.SetBackends(nil)
}

// SetBackends replaces the backends, host:port each. Connections to those that
// are gone are closed.
func (p *Proxy) SetBackends(addresses []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for address, b := range p.backends {
		if !slices.Contains(addresses, address) {
			b.cancel()
			b.closeAll()
			delete(p.backends, address)
		}
	}
	for _, address := range addresses {
		if p.backends[address] != nil {
			continue
		}
		ctx, cancel := context.WithCancel(context.Background())
		b := &backend{address: address, connections: map[io.Closer]struct{}{}, cancel: cancel}
		p.backends[address] = b
		go p.check(ctx, b)
	}
}

// check watches one backend until it is removed.
func (p *Proxy) check(ctx context.Context, b *backend) {
	ticker := time.NewTicker(checkInterval)
	defer ticker.Stop()
	for {
		conn, err := dial(ctx, b.address)
		if err == nil {
			conn.Close()
		}
		p.checked(b, err)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (p *Proxy) checked(b *backend, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		b.failed = 0
		return
	}
	if b.failed++; b.failed >= failures {
		b.closeAll()
	}
}

func (b *backend) closeAll() {
	for conn := range b.connections {
		conn.Close()
	}
}

func dial(ctx context.Context, address string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: dialTimeout}
	return dialer.DialContext(ctx, "tcp", address)
}

func (p *Proxy) accept(ctx context.Context) {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		go p.serve(ctx, client)
	}
}

// serve connects a client to the first backend that takes it.
func (p *Proxy) serve(ctx context.Context, client net.Conn) {
	defer client.Close()
	for _, b := range p.candidates() {
		server, err := dial(ctx, b.address)
		if err != nil {
			continue
		}
		defer server.Close()
		if !p.track(b, client, server) {
			continue // removed meanwhile
		}
		defer p.untrack(b, client, server)
		pipe(client, server)
		return
	}
}

// candidates are all backends, the healthy ones first, each turn beginning with
// another one.
func (p *Proxy) candidates() []*backend {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next++
	var healthy, out []*backend
	for _, address := range slices.Sorted(maps.Keys(p.backends)) {
		if b := p.backends[address]; b.failed < failures {
			healthy = append(healthy, b)
		} else {
			out = append(out, b)
		}
	}
	if len(healthy) == 0 {
		return out
	}
	turn := p.next % len(healthy)
	return slices.Concat(healthy[turn:], healthy[:turn], out)
}

func (p *Proxy) track(b *backend, conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.backends[b.address] != b {
		return false
	}
	for _, conn := range conns {
		b.connections[conn] = struct{}{}
	}
	return true
}

func (p *Proxy) untrack(b *backend, conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range conns {
		delete(b.connections, conn)
	}
}

// pipe copies both ways until one side ends; both are the caller's to close.
func pipe(a, b net.Conn) {
	done := make(chan struct{}, 2)
	for _, way := range [][2]net.Conn{{a, b}, {b, a}} {
		go func() {
			_, _ = io.Copy(way[0], way[1]) // how a connection ends doesn't matter
			done <- struct{}{}
		}()
	}
	<-done
}

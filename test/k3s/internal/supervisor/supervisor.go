// Package supervisor is the listener on port 6443: K3s' own endpoints, and
// kube-apiserver behind them.
package supervisor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"
	"k8s.io/client-go/kubernetes"

	"github.com/capk3s/capk3s/test/k3s/internal/config"
	"github.com/capk3s/capk3s/test/k3s/internal/etcd"
	"github.com/capk3s/capk3s/test/k3s/internal/passwd"
	"github.com/capk3s/capk3s/test/k3s/internal/pki"
)

// Supervisor serves a server's supervisor port.
type Supervisor struct {
	cfg       *config.Config
	control   *config.Control
	files     pki.Files
	passwords *passwd.File
	clientCAs *x509.CertPool
	tunnel    *tunnel
	deferred  deferredNodes

	etcd    *etcd.Server
	handler atomic.Pointer[http.Handler]
	proxy   atomic.Pointer[apiProxy]
	kube    atomic.Pointer[kubernetes.Interface]
}

// New prepares a supervisor; the certificates must be there.
func New(cfg *config.Config, files pki.Files) (*Supervisor, error) {
	passwords, err := passwd.Read(files.PasswdFile)
	if err != nil {
		return nil, err
	}
	clientCAs, err := loadPool(files.ClientCA)
	if err != nil {
		return nil, err
	}
	control := &cfg.Server.Control
	return &Supervisor{
		cfg: cfg, control: control, files: files, passwords: passwords, clientCAs: clientCAs,
		tunnel: newTunnel(control),
	}, nil
}

// Listen opens the port. Until Bind is called, every request is answered with
// 503 "starting".
func (s *Supervisor) Listen(ctx context.Context) error {
	cert, err := tls.LoadX509KeyPair(s.files.Leaf("k3s-serving"))
	if err != nil {
		return err
	}
	address := net.JoinHostPort(s.control.BindAddress, fmt.Sprint(s.control.SupervisorPort))
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler:  http.HandlerFunc(s.serve),
		ErrorLog: log.New(io.Discard, "", 0),
		TLSConfig: &tls.Config{
			Certificates: []tls.Certificate{cert},
			ClientAuth:   tls.RequestClientCert,
			MinVersion:   tls.VersionTLS12,
			NextProtos:   []string{"h2", "http/1.1"},
		},
		ReadHeaderTimeout: 30 * time.Second,
	}
	go func() {
		if err := server.ServeTLS(listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
			logrus.Fatalf("server stopped: %v", err)
		}
	}()
	go func() {
		<-ctx.Done()
		_ = server.Close()
	}()
	return nil
}

// Bind starts answering; kube-apiserver may come later.
func (s *Supervisor) Bind(store *etcd.Server) {
	s.etcd = store
	handler := s.routes()
	s.handler.Store(&handler)
}

// SetAPIServer passes everything that isn't K3s' own on to kube-apiserver.
func (s *Supervisor) SetAPIServer(url string) error {
	proxy, err := newAPIProxy(url, s.files, s.byCertificate)
	if err != nil {
		return err
	}
	s.proxy.Store(proxy)
	return nil
}

// SetReady tells that the controllers run; kube is an administrator's client.
func (s *Supervisor) SetReady(kube kubernetes.Interface) { s.kube.Store(&kube) }

// Kube is the client given to SetReady; nil before.
func (s *Supervisor) Kube() kubernetes.Interface {
	if kube := s.kube.Load(); kube != nil {
		return *kube
	}
	return nil
}

func (s *Supervisor) serve(w http.ResponseWriter, r *http.Request) {
	handler := s.handler.Load()
	if handler == nil {
		http.Error(w, "starting", http.StatusServiceUnavailable)
		return
	}
	(*handler).ServeHTTP(w, r)
}

// Package apiserver runs a real kube-apiserver as a child process.
package apiserver

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/capk3s/capk3s/test/k3s/internal/config"
	"github.com/capk3s/capk3s/test/k3s/internal/datastore"
	"github.com/capk3s/capk3s/test/k3s/internal/pki"
)

// PathEnv names the kube-apiserver to run.
const PathEnv = "K3S_KUBE_APISERVER"

// Binary finds kube-apiserver: from the environment, beside this program, or in
// PATH.
func Binary() (string, error) {
	if path := os.Getenv(PathEnv); path != "" {
		return path, nil
	}
	if self, err := os.Executable(); err == nil {
		if beside := filepath.Join(filepath.Dir(self), "kube-apiserver"); isExecutable(beside) {
			return beside, nil
		}
	}
	path, err := exec.LookPath("kube-apiserver")
	if err != nil {
		return "", fmt.Errorf("find kube-apiserver (set %s): %w", PathEnv, err)
	}
	return path, nil
}

func isExecutable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// Server is the kube-apiserver of this machine.
type Server struct {
	// URL is where it listens, on the loopback.
	URL     string
	args    []string
	binary  string
	probe   *http.Client
	stopped chan struct{}
}

// New prepares kube-apiserver with as few features as the tests need.
func New(cfg *config.Config, files pki.Files, store datastore.Access) (*Server, error) {
	binary, err := Binary()
	if err != nil {
		return nil, err
	}
	control := &cfg.Server.Control
	transport, err := adminTransport(files)
	if err != nil {
		return nil, err
	}
	return &Server{
		URL:     fmt.Sprintf("https://127.0.0.1:%d", control.APIServerPort),
		args:    arguments(cfg, files, store),
		binary:  binary,
		probe:   &http.Client{Timeout: 5 * time.Second, Transport: transport},
		stopped: make(chan struct{}),
	}, nil
}

func adminTransport(files pki.Files) (*http.Transport, error) {
	cert, err := tls.LoadX509KeyPair(files.Leaf("client-supervisor"))
	if err != nil {
		return nil, err
	}
	bundle, err := os.ReadFile(files.ServerCA)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(bundle)
	return &http.Transport{TLSClientConfig: &tls.Config{
		RootCAs: pool, Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12,
	}}, nil
}

func arguments(cfg *config.Config, files pki.Files, store datastore.Access) []string {
	control := &cfg.Server.Control
	cert, key := files.Leaf("serving-kube-apiserver")
	values := [][2]string{
		{"bind-address", "127.0.0.1"},
		{"secure-port", fmt.Sprint(control.APIServerPort)},
		{"advertise-address", control.AdvertiseIP},
		{"tls-cert-file", cert},
		{"tls-private-key-file", key},
		{"etcd-servers", strings.Join(store.Servers, ",")},
		{"etcd-cafile", store.CAFile},
		{"etcd-certfile", store.CertFile},
		{"etcd-keyfile", store.KeyFile},
		{"client-ca-file", files.ClientCA},
		{"requestheader-client-ca-file", files.RequestHeaderCA},
		{"requestheader-allowed-names", "system:auth-proxy"},
		{"requestheader-username-headers", "X-Remote-User"},
		{"requestheader-group-headers", "X-Remote-Group"},
		{"requestheader-extra-headers-prefix", "X-Remote-Extra-"},
		{"anonymous-auth", "false"},
		{"authorization-mode", "Node,RBAC"},
		{"enable-bootstrap-token-auth", "true"},
		{"enable-admission-plugins", "NodeRestriction"},
		// There is no kube-controller-manager that would make service accounts.
		{"disable-admission-plugins", "ServiceAccount"},
		{"service-account-issuer", "https://kubernetes.default.svc." + control.ClusterDomain},
		{"service-account-key-file", files.ServiceKey},
		{"service-account-signing-key-file", files.ServiceKey},
		{"service-cluster-ip-range", control.ServiceIPRange.String()},
		{"service-node-port-range", control.ServiceNodePortRange.String()},
		{"allow-privileged", "true"},
		{"profiling", "false"},
		// The supervisor's address is what clients use, so the emulator writes
		// the endpoints itself.
		{"endpoint-reconciler-type", "none"},
		{"enable-priority-and-fairness", "false"},
		{"etcd-count-metric-poll-period", "0"},
		{"etcd-db-metric-poll-interval", "0"},
		{"shutdown-delay-duration", "0s"},
	}
	if control.EncryptSecrets {
		values = append(values, [2]string{"encryption-provider-config", files.EncryptionConfig})
	}
	return override(values, cfg.Server.APIServerArgs)
}

// override lets the user's arguments replace the emulator's.
func override(values [][2]string, extra []string) []string {
	replaced := map[string]bool{}
	for _, arg := range extra {
		name, _, _ := strings.Cut(arg, "=")
		replaced[name] = true
	}
	// kube-apiserver refuses both at once, and so K3s drops its own.
	if replaced["authentication-config"] {
		replaced["anonymous-auth"] = true
	}
	var args []string
	for _, value := range values {
		if !replaced[value[0]] {
			args = append(args, "--"+value[0]+"="+value[1])
		}
	}
	for _, arg := range extra {
		args = append(args, "--"+arg)
	}
	return args
}

// Run runs kube-apiserver until the context ends. Its own end is an error. The
// kernel kills the child when this process dies, which it does by the thread
// that started the child: so that thread is kept.
func (s *Server) Run(ctx context.Context) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(s.stopped)
	cmd := exec.Command(s.binary, s.args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	logrus.Infof("Running kube-apiserver %s", strings.Join(s.args, " "))
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start kube-apiserver: %w", err)
	}
	go forward(stderr)
	go func() {
		<-ctx.Done()
		_ = cmd.Process.Kill()
	}()
	err = cmd.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("apiserver exited: %w", err)
}

// Wait returns when kube-apiserver has ended, or after a while.
func (s *Server) Wait(atMost time.Duration) {
	select {
	case <-s.stopped:
	case <-time.After(atMost):
	}
}

// forward passes on what kube-apiserver logs as errors; the rest is too much
// for a machine's log.
func forward(stderr io.Reader) {
	lines := bufio.NewReader(stderr)
	for {
		line, err := lines.ReadString('\n')
		if strings.HasPrefix(line, "E") || strings.HasPrefix(line, "F") || strings.HasPrefix(line, "Error") || strings.HasPrefix(line, "panic") {
			fmt.Fprint(os.Stderr, line)
		}
		if err != nil {
			return
		}
	}
}

// WaitReady returns when kube-apiserver says that it is ready.
func (s *Server) WaitReady(ctx context.Context) error {
	for {
		if s.ready() {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.stopped:
			return errors.New("apiserver exited")
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func (s *Server) ready() bool {
	resp, err := s.probe.Get(s.URL + "/readyz")
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

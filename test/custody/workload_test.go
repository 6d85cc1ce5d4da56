package custody

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/capk3s/capk3s/pkg/k3s"
)

// workload pretends to be the servers of one K3s cluster behind their endpoint: the supervisor's API is answered here,
// the Kubernetes API is that of env, where a label keeps the clusters' Nodes apart.
type workload struct {
	id       string
	port     int32
	listener net.Listener
	proxy    *httputil.ReverseProxy

	mu sync.Mutex
	// founders are the Machines that were told to found the cluster, in that order.
	founders []string
	// refused are those that wanted to join and could not.
	refused []string
	// files are K3s' CA files by their path below server/tls.
	files   map[string][]byte
	token   string
	agent   string
	members []k3s.Member
	running map[string]bool
	serving *tls.Certificate
	clients *x509.CertPool
}

var errDown = errors.New("no server runs")

// newWorkload listens at the endpoint of a cluster of which no server runs yet.
func newWorkload(t testing.TB, id string) *workload {
	t.Helper()
	w := &workload{id: id, running: map[string]bool{}}
	var err error
	w.listener, err = net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	w.port = int32(w.listener.Addr().(*net.TCPAddr).Port) //nolint:gosec // a port
	transport, err := rest.TransportFor(env.Config)
	require.NoError(t, err)
	api, err := url.Parse(env.Config.Host)
	require.NoError(t, err)
	w.proxy = &httputil.ReverseProxy{
		Transport:     transport,
		FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(api)
			r.Out.Header.Del("Authorization")
			if r.In.URL.Path == "/api/v1/nodes" {
				query := r.In.URL.Query()
				query.Set("labelSelector", strings.Trim(query.Get("labelSelector")+","+workloadLabel+"="+w.id, ","))
				r.Out.URL.RawQuery = query.Encode()
			}
		},
		ErrorHandler: func(rw http.ResponseWriter, _ *http.Request, _ error) { rw.WriteHeader(http.StatusBadGateway) },
	}
	server := &http.Server{
		Handler: w, ReadHeaderTimeout: time.Minute, ErrorLog: discardLog,
		TLSConfig: &tls.Config{
			MinVersion: tls.VersionTLS12,
			ClientAuth: tls.RequestClientCert,
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
				w.mu.Lock()
				defer w.mu.Unlock()
				if len(w.running) == 0 {
					return nil, errDown
				}
				return w.serving, nil
			},
		},
	}
	go func() { _ = server.ServeTLS(w.listener, "", "") }()
	t.Cleanup(func() { _ = server.Close() })
	return w
}

// ServeHTTP answers as a K3s server does.
func (w *workload) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.running) == 0 {
		http.Error(rw, errDown.Error(), http.StatusServiceUnavailable)
		return
	}
	switch r.URL.Path {
	case "/cacerts":
		_, _ = rw.Write(w.files["server-ca.crt"])
	case "/readyz":
		_, _ = rw.Write([]byte("ok"))
	case "/db/info":
		w.forServers(rw, r, func() any { return map[string]any{"members": w.members} })
	case "/v1-k3s/server-bootstrap":
		w.forServers(rw, r, func() any { return w.bootstrap() })
	default:
		if !slices.Contains(w.groups(r), "system:masters") {
			http.Error(rw, "forbidden", http.StatusForbidden)
			return
		}
		w.mu.Unlock()
		defer w.mu.Lock() // For the deferred unlock.
		w.proxy.ServeHTTP(rw, r)
	}
}

func (w *workload) forServers(rw http.ResponseWriter, r *http.Request, answer func() any) {
	user, password, basic := r.BasicAuth()
	switch {
	case basic && (user != k3s.ServerUser || password != w.token):
		http.Error(rw, "not authorized", http.StatusUnauthorized)
	case !basic && !slices.Contains(w.groups(r), "k3s:server"):
		http.Error(rw, "forbidden", http.StatusForbidden)
	default:
		_ = json.NewEncoder(rw).Encode(answer())
	}
}

// groups are those of the client certificate, if the client CA signed it.
func (w *workload) groups(r *http.Request) []string {
	if len(r.TLS.PeerCertificates) == 0 {
		return nil
	}
	certificate := r.TLS.PeerCertificates[0]
	_, err := certificate.Verify(x509.VerifyOptions{Roots: w.clients, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	if err != nil {
		return nil
	}
	return certificate.Subject.Organization
}

// bootstrapFiles are the files of /v1-k3s/server-bootstrap by their keys there.
var bootstrapFiles = map[string]string{
	"ServerCA": "server-ca.crt", "ServerCAKey": "server-ca.key",
	"ClientCA": "client-ca.crt", "ClientCAKey": "client-ca.key",
	"ETCDServerCA": "etcd/server-ca.crt", "ETCDServerCAKey": "etcd/server-ca.key",
	"ETCDPeerCA": "etcd/peer-ca.crt", "ETCDPeerCAKey": "etcd/peer-ca.key",
	"RequestHeaderCA": "request-header-ca.crt", "RequestHeaderCAKey": "request-header-ca.key",
	"ServiceKey": "service.key",
}

func (w *workload) bootstrap() k3s.Bootstrap {
	agent := w.agent
	if agent == "" {
		agent = w.token
	}
	answer := k3s.Bootstrap{"PasswdFile": {Content: []byte(fmt.Sprintf("%s,server,server,k3s:server\n%s,node,node,k3s:agent\n", w.token, agent))}}
	for key, file := range bootstrapFiles {
		if content := w.files[file]; content != nil {
			answer[key] = k3s.BootstrapFile{Content: content}
		}
	}
	return answer
}

// boot starts a machine with its bootstrap data. An error means that the machine must try again.
func (w *workload) boot(machine string, server bool, data []byte) error {
	boot, err := parseBootstrapData(data)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.running[machine]:
		return nil
	case boot.init:
		w.founders = append(w.founders, machine)
		if err := w.found(boot); err != nil {
			return err
		}
	case len(w.running) == 0:
		return errDown
	case !w.accepts(boot, server):
		w.refused = append(w.refused, machine)
		return fmt.Errorf("machine %s may not join", machine)
	}
	w.running[machine] = true
	if server {
		w.members = append(w.members, k3s.Member{ID: uint64(len(w.members) + 1), Name: memberOf(machine), PeerURLs: []string{"https://" + machine + ":2380"}})
	}
	return nil
}

func memberOf(machine string) string { return machine + "-0a1b2c3d" }

// accepts checks a full token as K3s does.
func (w *workload) accepts(boot *bootData, server bool) bool {
	hash, _, password, err := k3s.ParseToken(boot.token)
	ours, hashErr := k3s.CAHash(w.files["server-ca.crt"])
	if err != nil || hashErr != nil || hash != ours {
		return false
	}
	return password == w.token || !server && w.agent != "" && password == w.agent
}

func (w *workload) found(boot *bootData) error {
	_, _, password, err := k3s.ParseToken(boot.token)
	if err != nil {
		return err
	}
	w.token, w.agent, w.files, w.members = password, boot.agentToken, boot.files, nil
	w.clients = x509.NewCertPool()
	w.clients.AppendCertsFromPEM(w.files["client-ca.crt"])
	w.serving, err = servingCertificate(w.files["server-ca.crt"], w.files["server-ca.key"])
	return err
}

// kill ends a machine. Its etcd member stays, as that of a machine whose power failed.
func (w *workload) kill(machine string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.running, machine)
}

// stop ends all servers at once, as a power failure does, until the returned function starts them again.
func (w *workload) stop() (start func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	running := w.running
	w.running = map[string]bool{}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.running = running
	}
}

// removeMember does what K3s does on the Node's annotation.
func (w *workload) removeMember(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.members = slices.DeleteFunc(w.members, func(m k3s.Member) bool { return m.Name == name })
}

// rotate is "k3s token rotate".
func (w *workload) rotate(token string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.token = token
}

func (w *workload) currentToken() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.token
}

func (w *workload) history() (founders, refused []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.founders), slices.Clone(w.refused)
}

// servingCertificate makes what K3s serves with.
func servingCertificate(caCert, caKey []byte) (*tls.Certificate, error) {
	ca, err := tls.X509KeyPair(caCert, caKey)
	if err != nil {
		return nil, fmt.Errorf("reading the server CA: %w", err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "k3s"},
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, ca.Leaf, key.Public(), ca.PrivateKey)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: append([][]byte{der}, ca.Certificate...), PrivateKey: key}, nil
}

// fleet finds the workload of a namespace.
type fleet struct {
	mu       sync.Mutex
	clusters map[string]*workload
}

func (f *fleet) add(w *workload) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.clusters[w.id] = w
}

func (f *fleet) of(_ context.Context, namespace string) *workload {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.clusters[namespace]
}

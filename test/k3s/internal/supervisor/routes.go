package supervisor

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/sirupsen/logrus"

	"github.com/capk3s/capk3s/test/k3s/internal/bootstrap"
	"github.com/capk3s/capk3s/test/k3s/internal/config"
	"github.com/capk3s/capk3s/test/k3s/internal/passwd"
)

const prefix = "/v1-k3s"

// The number of agents' requests that are served at once; more get a 429.
const (
	maxAgentReads  = 20
	maxAgentWrites = 10
)

// routes puts the endpoints together: path, who may, what is done.
func (s *Supervisor) routes() http.Handler {
	limit := newInFlight(maxAgentReads, maxAgentWrites)
	agent := func(next handlerFor) http.HandlerFunc {
		return s.hasRole(limit.wrap(next), passwd.GroupAgent, groupNodes, groupBootstrappers)
	}
	server := func(next handlerFor) http.HandlerFunc { return s.hasRole(next, passwd.GroupServer) }
	paths := map[string]http.HandlerFunc{
		"/ping":    ping,
		"/cacerts": s.file(s.files.ServerCA),
		"/db/info": s.localOr(s.dbInfo, passwd.GroupServer),

		prefix + "/server-bootstrap": server(s.serverBootstrap),
		prefix + "/token":            server(s.rotateToken),
		prefix + "/encrypt/status":   server(s.encryptionStatus),
		prefix + "/encrypt/config":   server(notEmulated),
		prefix + "/cert/cacerts":     server(notEmulated),

		prefix + "/connect": s.hasRole(s.tunnel.connect, groupNodes),

		prefix + "/config":                    agent(s.config),
		prefix + "/apiservers":                agent(s.apiServers),
		prefix + "/readyz":                    agent(s.readyz),
		prefix + "/client-ca.crt":             agent(anyone(s.file(s.files.ClientCA))),
		prefix + "/server-ca.crt":             agent(anyone(s.file(s.files.ServerCA))),
		prefix + "/serving-kubelet.crt":       agent(s.servingKubeletCert),
		prefix + "/client-kubelet.crt":        agent(s.clientKubeletCert),
		prefix + "/client-kube-proxy.crt":     agent(s.kubeProxyCert),
		prefix + "/client-k3s-controller.crt": agent(s.controllerCert),
	}
	static := http.StripPrefix("/static/", http.FileServer(http.Dir(filepath.Join(s.control.DataDir, "static"))))
	connect := s.hasRole(s.tunnel.dial, groupMasters)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler, found := paths[r.URL.Path]
		switch {
		case r.Method == http.MethodConnect:
			connect(w, r)
		case found:
			handler(w, r)
		case strings.HasPrefix(r.URL.Path, "/static/"):
			static.ServeHTTP(w, r)
		default:
			s.apiServer(w, r)
		}
	})
}

// anyone is a handler that doesn't care who asks, once they may.
func anyone(next http.HandlerFunc) handlerFor {
	return func(w http.ResponseWriter, r *http.Request, _ *identity) { next(w, r) }
}

func ping(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte("pong"))
}

func (s *Supervisor) file(path string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		content, err := os.ReadFile(path)
		if err != nil {
			sendError(w, r, http.StatusInternalServerError, err)
			return
		}
		w.Header().Set("Content-Type", "text/plain")
		_, _ = w.Write(content)
	}
}

func notEmulated(w http.ResponseWriter, r *http.Request, _ *identity) {
	sendError(w, r, http.StatusNotImplemented, config.ErrNotEmulated)
}

// apiServer hands a request to kube-apiserver, once it is there.
func (s *Supervisor) apiServer(w http.ResponseWriter, r *http.Request) {
	proxy := s.proxy.Load()
	if proxy == nil {
		sendError(w, r, http.StatusServiceUnavailable, errAPINotReady)
		return
	}
	proxy.ServeHTTP(w, r)
}

// dbInfo lists etcd's members.
func (s *Supervisor) dbInfo(w http.ResponseWriter, r *http.Request, _ *identity) {
	if !s.etcd.Managed() {
		sendError(w, r, http.StatusBadRequest, errors.New("etcd datastore disabled"))
		return
	}
	if r.Method != http.MethodGet {
		sendError(w, r, http.StatusMethodNotAllowed, errMethod)
		return
	}
	members, err := s.etcd.List(r.Context())
	if err != nil {
		sendError(w, r, http.StatusInternalServerError, errors.New("failed to get etcd MemberList: "+err.Error()))
		return
	}
	sendJSON(w, members)
}

// serverBootstrap hands out the shared files: as stored in the cluster if the
// password opens them, else as they lie on disk.
func (s *Supervisor) serverBootstrap(w http.ResponseWriter, r *http.Request, _ *identity) {
	if !s.etcd.Managed() {
		logrus.Warnf("Received HTTP bootstrap request from %s, but embedded etcd is not enabled.", r.RemoteAddr)
		sendError(w, r, http.StatusBadRequest, errors.New("etcd disabled"))
		return
	}
	data, err := s.storedBootstrap(r)
	if err != nil || data == nil {
		data, err = bootstrap.FromDisk(s.files)
	}
	if err != nil {
		sendError(w, r, http.StatusInternalServerError, err)
		return
	}
	sendJSON(w, data)
}

func (s *Supervisor) encryptionStatus(w http.ResponseWriter, r *http.Request, _ *identity) {
	if r.Method != http.MethodGet {
		sendError(w, r, http.StatusMethodNotAllowed, errMethod)
		return
	}
	state := map[string]any{"stage": "", "activekey": ""}
	if s.control.EncryptSecrets {
		state = map[string]any{"enable": true, "stage": "start", "activekey": "AES-CBC aescbckey", "hashmatch": true}
	}
	sendJSON(w, state)
}

// config tells agents and joining servers about this server.
func (s *Supervisor) config(w http.ResponseWriter, _ *http.Request, _ *identity) {
	sendJSON(w, s.control)
}

func (s *Supervisor) readyz(w http.ResponseWriter, r *http.Request, _ *identity) {
	if s.Kube() == nil {
		sendError(w, r, http.StatusServiceUnavailable, errCoreNotReady)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte("ok"))
}

func sendJSON(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(value); err != nil {
		logrus.Debugf("Failed to send answer: %v", err)
	}
}

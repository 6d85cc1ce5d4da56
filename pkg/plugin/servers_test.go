package plugin_test

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capk3s/capk3s/pkg/certs"
)

// servers pretends to be a cluster's servers behind their endpoint, as far as a token is judged there.
type servers struct {
	*httptest.Server

	// token is what they accept, and accepted their answer to it.
	token    string
	accepted int

	// bundle is the CAs that they show, and ca the one that signed what they serve with.
	bundle []byte
	ca     tls.Certificate

	mu   sync.Mutex
	sent []string
}

// newServersFixture is a Cluster in custody, whose servers don't run yet.
func newServersFixture(t *testing.T) (*fixture, *servers) {
	t.Helper()
	s := &servers{accepted: http.StatusOK}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(s.answer))
	t.Cleanup(s.Close)
	f := newFixture(t, func(c *clusterv1.Cluster) {
		c.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: "127.0.0.1", Port: int32(s.Listener.Addr().(*net.TCPAddr).Port)} //nolint:gosec // a port
	})
	f.keepCustody(t)
	s.token, s.bundle = f.token.Server, f.certificates.ServerCABundle()
	pair, _ := f.certificates.Pair(certs.ServerCA)
	var err error
	s.ca, err = pair.TLS()
	require.NoError(t, err)
	return f, s
}

func (s *servers) start(t *testing.T) {
	t.Helper()
	s.TLS = &tls.Config{Certificates: []tls.Certificate{servingCertificate(t, s.ca)}, MinVersion: tls.VersionTLS12}
	s.StartTLS()
}

func (s *servers) answer(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, password, sent := r.BasicAuth()
	if sent {
		s.sent = append(s.sent, password)
	}
	switch {
	case r.URL.Path == "/cacerts":
		_, _ = w.Write(s.bundle)
	case r.URL.Path != "/db/info":
		w.WriteHeader(http.StatusNotFound)
	case !sent:
		w.WriteHeader(http.StatusForbidden)
	case password != s.token:
		w.WriteHeader(http.StatusUnauthorized)
	default:
		w.WriteHeader(s.accepted)
	}
}

// requireSent checks that the token was sent, or was not.
func (s *servers) requireSent(t *testing.T, wanted bool) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	assert.Equal(t, wanted, len(s.sent) > 0, "whether the token was sent")
}

package supervisor

import (
	"crypto/tls"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"

	"github.com/capk3s/capk3s/test/k3s/internal/pki"
)

// apiProxy passes requests on to kube-apiserver, and tells it who the client
// is: real K3s shares the connection with kube-apiserver, here a front proxy's
// headers stand in for the client's certificate.
type apiProxy struct {
	identified *httputil.ReverseProxy
	anonymous  *httputil.ReverseProxy
	identify   func(*http.Request) (*identity, error)
}

func newAPIProxy(address string, files pki.Files, identify func(*http.Request) (*identity, error)) (*apiProxy, error) {
	target, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	pool, err := loadPool(files.ServerCA)
	if err != nil {
		return nil, err
	}
	cert, err := tls.LoadX509KeyPair(files.Leaf("client-auth-proxy"))
	if err != nil {
		return nil, err
	}
	plain := &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	asProxy := plain.Clone()
	asProxy.Certificates = []tls.Certificate{cert}
	return &apiProxy{
		identified: reverseProxy(target, asProxy),
		anonymous:  reverseProxy(target, plain),
		identify:   identify,
	}, nil
}

func reverseProxy(target *url.URL, tlsConfig *tls.Config) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Rewrite:       func(pr *httputil.ProxyRequest) { pr.SetURL(target) },
		Transport:     newSwitch(tlsConfig),
		FlushInterval: -1,
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, _ error) {
			sendError(w, r, http.StatusServiceUnavailable, errAPINotReady)
		},
	}
}

// switchTransport uses HTTP/2, except for connections that are upgraded.
type switchTransport struct {
	normal, upgrade http.RoundTripper
}

func newSwitch(tlsConfig *tls.Config) *switchTransport {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &switchTransport{
		normal:  &http.Transport{TLSClientConfig: tlsConfig.Clone(), ForceAttemptHTTP2: true},
		upgrade: &http.Transport{TLSClientConfig: tlsConfig.Clone(), Protocols: protocols},
	}
}

// RoundTrip picks the transport.
func (t *switchTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Header.Get("Upgrade") != "" {
		return t.upgrade.RoundTrip(r)
	}
	return t.normal.RoundTrip(r)
}

// ServeHTTP passes one request on.
func (p *apiProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for name := range r.Header {
		if strings.HasPrefix(name, "X-Remote-") {
			r.Header.Del(name)
		}
	}
	who, err := p.identify(r)
	if who == nil || err != nil {
		p.anonymous.ServeHTTP(w, r)
		return
	}
	r.Header.Set("X-Remote-User", who.name)
	for _, group := range who.groups {
		r.Header.Add("X-Remote-Group", group)
	}
	p.identified.ServeHTTP(w, r)
}

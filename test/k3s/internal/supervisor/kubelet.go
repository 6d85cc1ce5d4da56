package supervisor

import (
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capk3s/capk3s/test/k3s/internal/pki"
)

var (
	serverUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	clientUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
)

func (s *Supervisor) servingKubeletCert(w http.ResponseWriter, r *http.Request, who *identity) {
	node, ok := s.nodeName(w, r, who)
	if !ok {
		return
	}
	names := []string{node, "localhost", "127.0.0.1"}
	if addresses := r.Header.Get("k3s-Node-IP"); addresses != "" {
		for _, address := range strings.Split(addresses, ",") {
			if net.ParseIP(address) == nil {
				sendError(w, r, http.StatusInternalServerError, fmt.Errorf("invalid node IP address %s", address))
				return
			}
			names = append(names, address)
		}
	}
	s.sign(w, r, s.files.ServerCA, s.files.ServerCAKey, "serving-kubelet",
		pki.Request{CommonName: node, Names: names, Usages: serverUsage})
}

func (s *Supervisor) clientKubeletCert(w http.ResponseWriter, r *http.Request, who *identity) {
	node, ok := s.nodeName(w, r, who)
	if !ok {
		return
	}
	s.signClient(w, r, "client-kubelet", pki.Request{CommonName: nodeUserPrefix + node, Organization: []string{groupNodes}})
}

func (s *Supervisor) kubeProxyCert(w http.ResponseWriter, r *http.Request, _ *identity) {
	s.signClient(w, r, "client-kube-proxy", pki.Request{CommonName: "system:kube-proxy"})
}

func (s *Supervisor) controllerCert(w http.ResponseWriter, r *http.Request, _ *identity) {
	s.signClient(w, r, "client-k3s-controller", pki.Request{CommonName: "system:k3s-controller"})
}

func (s *Supervisor) signClient(w http.ResponseWriter, r *http.Request, name string, req pki.Request) {
	req.Usages = clientUsage
	s.sign(w, r, s.files.ClientCA, s.files.ClientCAKey, name, req)
}

// sign answers with a certificate and its CA's bundle. A client that sends no
// signing request gets the key that such clients share.
func (s *Supervisor) sign(w http.ResponseWriter, r *http.Request, caCert, caKey, name string, req pki.Request) {
	answer, err := s.signed(r, caCert, caKey, name, req)
	if err != nil {
		sendError(w, r, http.StatusInternalServerError, err)
		return
	}
	_, _ = w.Write(answer)
}

func (s *Supervisor) signed(r *http.Request, caCert, caKey, name string, req pki.Request) ([]byte, error) {
	ca, err := pki.LoadCA(caCert, caKey)
	if err != nil {
		return nil, err
	}
	if csr := signingRequest(r); csr != nil {
		return ca.Sign(req, csr.PublicKey)
	}
	_, keyPath := s.files.Leaf(name)
	key, err := pki.LoadOrCreateKey(keyPath)
	if err != nil {
		return nil, err
	}
	answer, err := ca.Sign(req, key.Public())
	if err != nil {
		return nil, err
	}
	shared, err := os.ReadFile(keyPath)
	return append(answer, shared...), err
}

func signingRequest(r *http.Request) *x509.CertificateRequest {
	if r.Method != http.MethodPost {
		return nil
	}
	der, err := io.ReadAll(r.Body)
	if err != nil {
		return nil
	}
	csr, err := x509.ParseCertificateRequest(der)
	if err != nil {
		return nil
	}
	return csr
}

// apiServers lists the addresses that kube-apiservers are known by.
func (s *Supervisor) apiServers(w http.ResponseWriter, r *http.Request, _ *identity) {
	addresses := []string{}
	if kube := s.Kube(); kube != nil {
		ctx, cancel := context.WithTimeout(r.Context(), 5*time.Second)
		defer cancel()
		slices, err := kube.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{
			LabelSelector: discoveryv1.LabelServiceName + "=kubernetes",
		})
		if err == nil {
			addresses = endpointAddresses(slices.Items)
		}
	}
	sendJSON(w, addresses)
}

func endpointAddresses(slices []discoveryv1.EndpointSlice) []string {
	addresses := []string{}
	for _, slice := range slices {
		for _, port := range slice.Ports {
			for _, endpoint := range slice.Endpoints {
				for _, address := range endpoint.Addresses {
					addresses = append(addresses, net.JoinHostPort(address, fmt.Sprint(*port.Port)))
				}
			}
		}
	}
	return addresses
}

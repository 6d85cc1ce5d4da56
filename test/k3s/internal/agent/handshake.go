package agent

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/sirupsen/logrus"

	"github.com/capk3s/capk3s/test/k3s/internal/client"
	"github.com/capk3s/capk3s/test/k3s/internal/config"
	"github.com/capk3s/capk3s/test/k3s/internal/nodepassword"
	"github.com/capk3s/capk3s/test/k3s/internal/passwd"
)

const api = "/v1-k3s"

// paths of an agent's certificates, by their names at the supervisor.
func (a *Agent) path(name string) string { return filepath.Join(a.cfg.AgentDir(), name) }

// clientCertificate is the kubelet's, if this agent was here before.
func (a *Agent) clientCertificate() *tls.Certificate {
	cert, err := tls.LoadX509KeyPair(a.path("client-kubelet.crt"), a.path("client-kubelet.key"))
	if err != nil {
		return nil
	}
	return &cert
}

func (a *Agent) newClient() (*client.Client, error) {
	return client.New(a.supervisor, a.token, client.Options{User: passwd.UserNode, Certificate: a.clientCertificate()})
}

// handshake gets everything that an agent needs from a supervisor, in the order
// in which K3s asks for it.
func (a *Agent) handshake() (*config.Control, error) {
	supervisor, err := a.newClient()
	if err != nil {
		return nil, err
	}
	control, err := getConfig(supervisor)
	if err != nil {
		return nil, fmt.Errorf("failed to retrieve configuration from server: %w", err)
	}
	for _, name := range []string{"client-ca.crt", "server-ca.crt"} {
		content, err := supervisor.Get(api + "/" + name)
		if err != nil {
			return nil, err
		}
		if err := a.write(name, content); err != nil {
			return nil, err
		}
	}
	header, err := a.nodeHeader()
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"serving-kubelet", "client-kubelet"} {
		if err := a.requestNodeCertificate(supervisor, name, header); err != nil {
			return nil, err
		}
	}
	for _, name := range []string{"client-kube-proxy", "client-k3s-controller"} {
		if err := a.requestCertificate(supervisor, name, nil); err != nil {
			return nil, err
		}
	}
	return control, nil
}

func getConfig(supervisor *client.Client) (*config.Control, error) {
	raw, err := supervisor.Get(api + "/config")
	if err != nil {
		return nil, err
	}
	var control config.Control
	return &control, json.Unmarshal(raw, &control)
}

// nodeHeader names the node, with its password.
func (a *Agent) nodeHeader() (http.Header, error) {
	password, err := nodepassword.Local()
	if err != nil {
		return nil, fmt.Errorf("node password: %w", err)
	}
	header := http.Header{}
	header.Set("k3s-Node-Name", a.cfg.NodeName)
	header.Set("k3s-Node-Password", password)
	header.Set("k3s-Node-IP", joinIPs(a.cfg.NodeIPs))
	return header, nil
}

func joinIPs(ips []net.IP) string {
	var out []string
	for _, ip := range ips {
		out = append(out, ip.String())
	}
	return strings.Join(out, ",")
}

// requestNodeCertificate falls back from the node's certificate to the token
// when the Node was deleted.
func (a *Agent) requestNodeCertificate(supervisor *client.Client, name string, header http.Header) error {
	err := a.requestCertificate(supervisor, name, header)
	if client.IsCode(err, http.StatusUnauthorized) && supervisor.Certificate != nil {
		logrus.Infof("Node authorization rejected, retrying without client certificate authentication")
		supervisor.Certificate = nil
		err = a.requestCertificate(supervisor, name, header)
	}
	if client.IsCode(err, http.StatusForbidden) {
		return fmt.Errorf("Node password rejected, duplicate hostname or contents of '%s' may not match server node-passwd entry, try enabling a unique node name with the --with-node-id flag", nodepassword.File()) //nolint:staticcheck // K3s' text
	}
	return err
}

// requestCertificate sends a signing request for a new key, and writes both.
func (a *Agent) requestCertificate(supervisor *client.Client, name string, header http.Header) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		return err
	}
	cert, err := supervisor.Post(api+"/"+name+".crt", csr, header)
	if err != nil {
		return err
	}
	if err := a.write(name+".key", pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})); err != nil {
		return err
	}
	return a.write(name+".crt", cert)
}

func (a *Agent) write(name string, content []byte) error {
	if err := os.MkdirAll(a.cfg.AgentDir(), 0o755); err != nil {
		return err
	}
	return os.WriteFile(a.path(name), content, 0o600)
}

package pki

import (
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math"
	"math/big"
	"net"
	"os"
	"slices"
	"time"

	"github.com/capk3s/capk3s/test/k3s/internal/token"
)

const leafLifetime = 365 * 24 * time.Hour

// Request says what a certificate is for.
type Request struct {
	CommonName   string
	Organization []string
	// Names are DNS names and addresses.
	Names  []string
	Usages []x509.ExtKeyUsage
}

// Sign issues a certificate for a public key and returns it in PEM, followed by
// the CA's bundle.
func (ca *CA) Sign(req Request, key crypto.PublicKey) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, big.NewInt(math.MaxInt64))
	if err != nil {
		return nil, err
	}
	issuer := ca.Chain[0]
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: req.CommonName, Organization: req.Organization},
		NotBefore:    issuer.NotBefore,
		NotAfter:     time.Now().Add(leafLifetime).UTC(),
		KeyUsage:     x509.KeyUsageKeyEncipherment | x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  req.Usages,
	}
	seen := map[string]bool{}
	for _, name := range req.Names {
		if seen[name] {
			continue
		}
		seen[name] = true
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, issuer, key, ca.key)
	if err != nil {
		return nil, fmt.Errorf("sign %s: %w", req.CommonName, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return encode(append([]*x509.Certificate{cert}, ca.Chain...)), nil
}

// ensureLeaf issues a certificate into files, unless the one that is there was
// signed by the same CA, has the same names and is good for 120 days more.
func ensureLeaf(ca *CA, req Request, certPath, keyPath string) error {
	key, err := LoadOrCreateKey(keyPath)
	if err != nil {
		return err
	}
	if current(ca, req, certPath, key) {
		return nil
	}
	content, err := ca.Sign(req, key.Public())
	if err != nil {
		return err
	}
	return write(certPath, content, 0o644)
}

func current(ca *CA, req Request, certPath string, key crypto.Signer) bool {
	raw, err := os.ReadFile(certPath)
	if err != nil {
		return false
	}
	certs, err := token.ParseBundle(raw)
	if err != nil {
		return false
	}
	cert := certs[0]
	public, ok := key.Public().(interface{ Equal(crypto.PublicKey) bool })
	if !ok || !public.Equal(cert.PublicKey) {
		return false
	}
	if cert.CheckSignatureFrom(ca.Chain[0]) != nil || time.Until(cert.NotAfter) < 120*24*time.Hour {
		return false
	}
	for _, name := range req.Names {
		if cert.VerifyHostname(name) != nil {
			return false
		}
	}
	return true
}

// Names are the names that go into a server's certificates.
type Names struct {
	// Supervisor are the names of the listener on 6443.
	Supervisor []string
	// Node are the names and addresses of this machine.
	Node []string
	// Service are the names and the address of the kubernetes Service.
	Service []string
}

// EnsureLeaves makes all certificates that a server needs.
func EnsureLeaves(f Files, names Names) error {
	local := []string{"localhost", "127.0.0.1", "::1"}
	client := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	server := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	both := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	node := slices.Concat(local, names.Node)
	leaves := []struct {
		ca, caKey, name string
		req             Request
	}{
		{f.ClientCA, f.ClientCAKey, "client-admin", Request{CommonName: "system:admin", Organization: []string{"system:masters"}, Usages: client}},
		{f.ClientCA, f.ClientCAKey, "client-supervisor", Request{CommonName: "system:k3s-supervisor", Organization: []string{"system:masters"}, Usages: client}},
		{f.RequestHeaderCA, f.RequestHeaderCAKey, "client-auth-proxy", Request{CommonName: "system:auth-proxy", Usages: client}},
		{f.ServerCA, f.ServerCAKey, "serving-kube-apiserver", Request{CommonName: "kube-apiserver", Names: slices.Concat(node, names.Service), Usages: server}},
		{f.ServerCA, f.ServerCAKey, "k3s-serving", Request{CommonName: "k3s", Organization: []string{"k3s"}, Names: names.Supervisor, Usages: server}},
		{f.ETCDServerCA, f.ETCDServerCAKey, "etcd/server-client", Request{CommonName: "etcd-server", Names: slices.Concat(node, []string{"kine.sock"}), Usages: both}},
		{f.ETCDPeerCA, f.ETCDPeerCAKey, "etcd/peer-server-client", Request{CommonName: "etcd-peer", Names: node, Usages: both}},
		{f.ETCDServerCA, f.ETCDServerCAKey, "etcd/client", Request{CommonName: "etcd-client", Usages: client}},
	}
	for _, leaf := range leaves {
		ca, err := LoadCA(leaf.ca, leaf.caKey)
		if err != nil {
			return err
		}
		cert, key := f.Leaf(leaf.name)
		if err := ensureLeaf(ca, leaf.req, cert, key); err != nil {
			return fmt.Errorf("certificate %s: %w", leaf.name, err)
		}
	}
	return nil
}

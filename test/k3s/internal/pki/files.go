// Package pki makes and reads K3s' certificate authorities and certificates.
package pki

import "path/filepath"

// Files are the paths of a server's keys and certificates. Fields named after
// the keys of the bootstrap data hold what all servers share.
type Files struct {
	ServerCA, ServerCAKey               string
	ClientCA, ClientCAKey               string
	RequestHeaderCA, RequestHeaderCAKey string
	ETCDServerCA, ETCDServerCAKey       string
	ETCDPeerCA, ETCDPeerCAKey           string
	ServiceKey                          string
	PasswdFile                          string
	IPSECKey                            string
	EncryptionConfig                    string

	ServerCANoChain, ClientCANoChain string
	TLSDir, EtcdTLSDir, CredDir      string
}

// NewFiles returns the paths below <data-dir>/server.
func NewFiles(serverDir string) Files {
	tlsDir := filepath.Join(serverDir, "tls")
	etcdDir := filepath.Join(tlsDir, "etcd")
	cred := filepath.Join(serverDir, "cred")
	return Files{
		ServerCA: filepath.Join(tlsDir, "server-ca.crt"), ServerCAKey: filepath.Join(tlsDir, "server-ca.key"),
		ClientCA: filepath.Join(tlsDir, "client-ca.crt"), ClientCAKey: filepath.Join(tlsDir, "client-ca.key"),
		RequestHeaderCA:    filepath.Join(tlsDir, "request-header-ca.crt"),
		RequestHeaderCAKey: filepath.Join(tlsDir, "request-header-ca.key"),
		ETCDServerCA:       filepath.Join(etcdDir, "server-ca.crt"), ETCDServerCAKey: filepath.Join(etcdDir, "server-ca.key"),
		ETCDPeerCA: filepath.Join(etcdDir, "peer-ca.crt"), ETCDPeerCAKey: filepath.Join(etcdDir, "peer-ca.key"),
		ServiceKey:       filepath.Join(tlsDir, "service.key"),
		PasswdFile:       filepath.Join(cred, "passwd"),
		IPSECKey:         filepath.Join(cred, "ipsec.psk"),
		EncryptionConfig: filepath.Join(cred, "encryption-config.json"),
		ServerCANoChain:  filepath.Join(tlsDir, "server-ca.nochain.crt"),
		ClientCANoChain:  filepath.Join(tlsDir, "client-ca.nochain.crt"),
		TLSDir:           tlsDir, EtcdTLSDir: etcdDir, CredDir: cred,
	}
}

// Leaf is the path of a certificate and its key below the TLS dir, by the name
// without suffix, e.g. "client-admin" or "etcd/client".
func (f Files) Leaf(name string) (cert, key string) {
	return filepath.Join(f.TLSDir, name+".crt"), filepath.Join(f.TLSDir, name+".key")
}

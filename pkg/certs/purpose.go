// Package certs keeps the certificate authorities of a K3s cluster and its kubeconfig.
//
// A new cluster gets a root and five CAs signed by it, each in a Secret <cluster>-<purpose> of Cluster API's form:
// tls.crt holds the CA and the root, tls.key the CA's key. The root's key never leaves the management cluster.
// [Reconcile] keeps them for the control plane; everybody else uses [Lookup].
package certs

import "path"

// Purpose says what a key pair of a cluster is for. It is also the suffix of the Secret's name.
type Purpose string

const (
	// Root signs the CAs of a cluster.
	Root Purpose = "root"

	// ServerCA signs what the API server and the supervisor serve with.
	ServerCA Purpose = "ca"

	// ClientCA signs the certificates of all clients.
	ClientCA Purpose = "cca"

	// EtcdCA signs what etcd serves with, and its clients.
	EtcdCA Purpose = "etcd"

	// EtcdPeerCA signs the certificates of etcd members among themselves.
	EtcdPeerCA Purpose = "etcd-peer"

	// RequestHeaderCA signs the client certificate of the API aggregation.
	RequestHeaderCA Purpose = "proxy"

	// ServiceAccount is the key that signs the tokens of service accounts. It has a public key and no certificate.
	ServiceAccount Purpose = "sa"
)

// SecretName returns the name of the Secret with a cluster's key pair.
func (p Purpose) SecretName(cluster string) string { return cluster + "-" + string(p) }

// SecretNames returns the names of all Secrets that this package keeps for a cluster.
func SecretNames(cluster string) []string {
	names := []string{KubeconfigSecretName(cluster)}
	for _, purpose := range known {
		names = append(names, purpose.SecretName(cluster))
	}
	return names
}

// profile is how K3s knows a key pair.
type profile struct {
	purpose Purpose

	// commonName is completed with the time as K3s does it.
	commonName string

	// cert and key are the names of the files in tlsDir.
	cert, key string
}

// tlsDir is relative to K3s' data directory.
const tlsDir = "server/tls"

const rootCommonName = "k3s-root-ca"

// profiles lists what K3s needs, in the order in which it is made.
var profiles = []profile{
	{ServerCA, "k3s-server-ca", "server-ca.crt", "server-ca.key"},
	{ClientCA, "k3s-client-ca", "client-ca.crt", "client-ca.key"},
	{EtcdCA, "etcd-server-ca", "etcd/server-ca.crt", "etcd/server-ca.key"},
	{EtcdPeerCA, "etcd-peer-ca", "etcd/peer-ca.crt", "etcd/peer-ca.key"},
	{RequestHeaderCA, "k3s-request-header-ca", "request-header-ca.crt", "request-header-ca.key"},
	{ServiceAccount, "", "", "service.key"},
}

// full is the set of a cluster that this operator made.
var full = []Purpose{ServerCA, ClientCA, EtcdCA, EtcdPeerCA, RequestHeaderCA, ServiceAccount}

// legacy is the set of a cluster that an older provider made: K3s itself made the rest.
var legacy = []Purpose{ServerCA, ClientCA, EtcdCA}

// known is every purpose, with the root first: the others are signed by it.
var known = append([]Purpose{Root}, full...)

func tlsPath(file string) string { return path.Join(tlsDir, file) }

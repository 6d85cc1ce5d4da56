package controllers

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/capk3s/capk3s/pkg/certs"
	"github.com/capk3s/capk3s/pkg/k3s"
)

const (
	// supervisorCertificateTTL is the life of the client certificate for the supervisor; it stays in memory.
	supervisorCertificateTTL = 24 * time.Hour

	// supervisorOrganization lets the certificate's bearer read /db/info and /v1-k3s/server-bootstrap.
	supervisorOrganization = "k3s:server"
)

// supervisors keeps one client for each cluster, so that connections and certificates are reused.
type supervisors struct {
	mu        sync.Mutex
	byCluster map[types.NamespacedName]supervisorEntry
}

type supervisorEntry struct {
	client    *k3s.Supervisor
	endpoint  string
	serverCAs []byte
	clientCAs []byte
	renewal   time.Time
}

// supervisor returns the client for the cluster's supervisor.
func (r *Reconciler) supervisor(s *scope) (*k3s.Supervisor, error) {
	if s.certificates == nil {
		return nil, errors.New("the certificate authorities are not available")
	}
	if !s.cluster.Spec.ControlPlaneEndpoint.IsValid() {
		return nil, errors.New("the Cluster has no control plane endpoint")
	}
	return r.supervisors.get(types.NamespacedName{Namespace: s.cluster.Namespace, Name: s.cluster.Name},
		s.cluster.Spec.ControlPlaneEndpoint.String(), s.certificates, s.now)
}

func (c *supervisors) get(cluster types.NamespacedName, endpoint string, set *certs.Set, now time.Time) (*k3s.Supervisor, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	entry, ok := c.byCluster[cluster]
	if ok && entry.endpoint == endpoint && now.Before(entry.renewal) &&
		bytes.Equal(entry.serverCAs, set.ServerCABundle()) && bytes.Equal(entry.clientCAs, set.ClientCA().Cert) {
		return entry.client, nil
	}
	certificate, err := supervisorCertificate(set.ClientCA(), now)
	if err != nil {
		return nil, fmt.Errorf("making a client certificate for the supervisor of Cluster %s: %w", cluster.Name, err)
	}
	client, err := k3s.NewSupervisor(endpoint, set.ServerCABundle(), certificate)
	if err != nil {
		return nil, fmt.Errorf("making a client for the supervisor of Cluster %s: %w", cluster.Name, err)
	}
	if ok {
		entry.client.Close()
	}
	if c.byCluster == nil {
		c.byCluster = map[types.NamespacedName]supervisorEntry{}
	}
	c.byCluster[cluster] = supervisorEntry{
		client: client, endpoint: endpoint, renewal: now.Add(supervisorCertificateTTL / 2),
		serverCAs: set.ServerCABundle(), clientCAs: set.ClientCA().Cert,
	}
	return client, nil
}

// supervisorCertificate is a client certificate that the supervisor takes for a server's.
func supervisorCertificate(clientCA certs.KeyPair, now time.Time) (tls.Certificate, error) {
	return certs.NewClientCertificate(clientCA, "capk3s-controlplane", []string{supervisorOrganization}, supervisorCertificateTTL, now)
}

// forget drops the client of a cluster that is gone.
func (c *supervisors) forget(cluster types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if entry, ok := c.byCluster[cluster]; ok {
		entry.client.Close()
		delete(c.byCluster, cluster)
	}
}

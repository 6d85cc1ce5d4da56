package world

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"os"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capk3s/capk3s/pkg/k3s"
)

// Workload is a cluster that the operator made, seen through its endpoint with
// what the management cluster holds of it.
type Workload struct {
	// Config is an administrator's, from the cluster's kubeconfig Secret.
	Config *rest.Config
	// Client reads and writes without a cache.
	Client client.WithWatch
	// Kubeconfig is the path of the kubeconfig as a file.
	Kubeconfig string

	supervisor *k3s.Supervisor
}

// Workload opens a workload cluster. It needs the cluster's endpoint, kubeconfig
// and CAs to be there, and no answer from the cluster itself.
func (m *Management) Workload(ctx context.Context, namespace, name string) (*Workload, error) {
	kubeconfig, err := m.secret(ctx, namespace, name+"-kubeconfig")
	if err != nil {
		return nil, err
	}
	w := &Workload{Kubeconfig: m.path(fmt.Sprintf("%s_%s.kubeconfig", namespace, name))}
	if err := os.WriteFile(w.Kubeconfig, kubeconfig["value"], 0o600); err != nil {
		return nil, fmt.Errorf("writing the kubeconfig of cluster %s: %w", name, err)
	}
	if w.Config, err = clientcmd.RESTConfigFromKubeConfig(kubeconfig["value"]); err != nil {
		return nil, fmt.Errorf("reading the kubeconfig of cluster %s: %w", name, err)
	}
	w.Config.QPS = -1
	if w.Client, err = client.NewWithWatch(w.Config, client.Options{Scheme: m.Client.Scheme()}); err != nil {
		return nil, fmt.Errorf("making a client of cluster %s: %w", name, err)
	}
	w.supervisor, err = m.supervisor(ctx, namespace, name)
	return w, err
}

// supervisor connects to the cluster's supervisor as one of its servers would.
func (m *Management) supervisor(ctx context.Context, namespace, name string) (*k3s.Supervisor, error) {
	cluster := &clusterv1.Cluster{}
	if err := m.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, cluster); err != nil {
		return nil, fmt.Errorf("reading cluster %s: %w", name, err)
	}
	serverCA, err := m.secret(ctx, namespace, name+"-ca")
	if err != nil {
		return nil, err
	}
	clientCA, err := m.secret(ctx, namespace, name+"-cca")
	if err != nil {
		return nil, err
	}
	certificate, err := issueFrom(clientCA, pkix.Name{CommonName: "world", Organization: []string{"k3s:server"}})
	if err != nil {
		return nil, fmt.Errorf("issuing a client certificate of cluster %s: %w", name, err)
	}
	endpoint := net.JoinHostPort(cluster.Spec.ControlPlaneEndpoint.Host, strconv.Itoa(int(cluster.Spec.ControlPlaneEndpoint.Port)))
	return k3s.NewSupervisor(endpoint, serverCA["tls.crt"], *certificate)
}

func (m *Management) secret(ctx context.Context, namespace, name string) (map[string][]byte, error) {
	secret := &corev1.Secret{}
	if err := m.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, secret); err != nil {
		return nil, fmt.Errorf("reading Secret %s: %w", name, err)
	}
	return secret.Data, nil
}

// issueFrom signs a client certificate with the CA in a TLS Secret's data.
func issueFrom(ca map[string][]byte, subject pkix.Name) (*tls.Certificate, error) {
	pair, err := tls.X509KeyPair(ca["tls.crt"], ca["tls.key"])
	if err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := certificateTemplate(subject)
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	der, err := x509.CreateCertificate(rand.Reader, template, pair.Leaf, key.Public(), pair.PrivateKey)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

// Members lists the etcd members; an answer proves that etcd has its quorum.
func (w *Workload) Members(ctx context.Context) ([]k3s.Member, error) {
	return w.supervisor.Members(ctx)
}

// Nodes lists the Nodes.
func (w *Workload) Nodes(ctx context.Context) ([]corev1.Node, error) {
	list := &corev1.NodeList{}
	if err := w.Client.List(ctx, list); err != nil {
		return nil, fmt.Errorf("listing Nodes: %w", err)
	}
	return list.Items, nil
}

// Close closes the connections that are open.
func (w *Workload) Close() { w.supervisor.Close() }

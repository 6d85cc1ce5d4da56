//go:build conformance

package conformance

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/capk3s/capk3s/test/k3s/internal/etcd"
)

// kube is an administrator's client to the machine's kube-apiserver.
func (m *machine) kube(t *testing.T) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(&rest.Config{
		Host: "https://" + m.ip + ":6443",
		TLSClientConfig: rest.TLSClientConfig{
			CAFile:   m.server("tls", "server-ca.crt"),
			CertFile: m.server("tls", "client-admin.crt"),
			KeyFile:  m.server("tls", "client-admin.key"),
		},
		Timeout: 15 * time.Second,
		QPS:     100,
		Burst:   100,
	})
	require.NoError(t, err)
	return client
}

// createNode makes a Node as a kubelet would, but for its labels.
func createNode(t *testing.T, kube kubernetes.Interface, name string, labels, annotations map[string]string) {
	t.Helper()
	_, err := kube.CoreV1().Nodes().Create(t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, Annotations: annotations},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
}

func getNode(t *testing.T, kube kubernetes.Interface, name string) *corev1.Node {
	t.Helper()
	node, err := kube.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	return node
}

// waitNode waits for a Node that is as the check wants it.
func waitNode(t *testing.T, kube kubernetes.Interface, name string, atMost time.Duration, check func(*corev1.Node) error) {
	t.Helper()
	eventually(t, atMost, func() error {
		node, err := kube.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		return check(node)
	})
}

// askRemoval sets the annotation that asks K3s to remove a Node's member.
func askRemoval(t *testing.T, kube kubernetes.Interface, name string) {
	t.Helper()
	_, err := kube.CoreV1().Nodes().Patch(t.Context(), name, types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"etcd.k3s.cattle.io/remove":"true"}}}`), metav1.PatchOptions{})
	require.NoError(t, err)
}

func condition(node *corev1.Node, kind corev1.NodeConditionType) corev1.NodeCondition {
	for _, condition := range node.Status.Conditions {
		if condition.Type == kind {
			return condition
		}
	}
	return corev1.NodeCondition{}
}

// members asks a server for the etcd members.
func (m *machine) members(password string) (etcd.Members, error) {
	var members etcd.Members
	got, err := caller{user: "server", password: password}.request(http.MethodGet, m.url("/db/info"), nil)
	if err != nil {
		return members, err
	}
	if got.code != http.StatusOK {
		return members, fmt.Errorf("/db/info: %d %s", got.code, got.body)
	}
	return members, json.Unmarshal([]byte(got.body), &members)
}

// waitMembers waits until the members are just these machines', all of them
// voting.
func waitMembers(t *testing.T, asked *machine, atMost time.Duration, machines ...*machine) {
	t.Helper()
	var want []string
	for _, m := range machines {
		want = append(want, "https://"+m.ip+":2380")
	}
	slices.Sort(want)
	eventually(t, atMost, func() error {
		members, err := asked.members(password)
		if err != nil {
			return err
		}
		var got []string
		for _, member := range members.Members {
			if member.IsLearner {
				return fmt.Errorf("%s is a learner", member.Name)
			}
			got = append(got, member.PeerURLs...)
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			return fmt.Errorf("members %v, want %v", got, want)
		}
		return nil
	})
}

// etcd is a client to the machine's etcd.
func (m *machine) etcd(t *testing.T) *clientv3.Client {
	t.Helper()
	cert, err := tls.LoadX509KeyPair(m.server("tls", "etcd", "client.crt"), m.server("tls", "etcd", "client.key"))
	require.NoError(t, err)
	bundle, err := os.ReadFile(m.server("tls", "etcd", "server-ca.crt"))
	require.NoError(t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	client, err := clientv3.New(clientv3.Config{
		Endpoints:   []string{"https://" + m.ip + ":2379"},
		DialTimeout: 5 * time.Second,
		TLS:         &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{cert}},
		Logger:      zap.NewNop(),
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func withTimeout(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	t.Cleanup(cancel)
	return ctx
}

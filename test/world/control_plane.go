package world

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// auditPolicy records every request once, when it is answered: a watch when it
// begins, since it may last longer than a test.
var auditPolicy = []byte(`apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, Panic]
rules:
- level: Metadata
  verbs: [watch]
  omitStages: [ResponseComplete]
- level: Metadata
  omitStages: [ResponseStarted]
`)

// controllers are those of kube-controller-manager that a management cluster
// without nodes has a use for.
const controllers = "garbage-collector-controller,namespace-controller,serviceaccount-controller," +
	"serviceaccount-token-controller,root-ca-certificate-publisher-controller,clusterrole-aggregation-controller"

func (m *Management) startEtcd(ctx context.Context) error {
	clients := "http://" + net.JoinHostPort(m.options.Address, "2379")
	peers := "http://" + net.JoinHostPort(m.options.Address, "2380")
	var err error
	m.Etcd, err = m.start(ctx, "etcd", "etcd", nil, []string{
		"--name=management", "--data-dir=" + m.path("etcd"), "--log-level=warn",
		"--listen-client-urls=" + clients, "--advertise-client-urls=" + clients,
		"--listen-peer-urls=" + peers, "--initial-advertise-peer-urls=" + peers, "--initial-cluster=management=" + peers,
		"--unsafe-no-fsync",
	}, func(ctx context.Context) error { return getOK(ctx, clients+"/health") })
	return err
}

func (m *Management) startAPIServer(ctx context.Context) error {
	m.AuditLog = m.path("audit.log")
	clientset, err := kubernetes.NewForConfig(m.Config)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	m.APIServer, err = m.start(ctx, "kube-apiserver", "kube-apiserver", nil, []string{
		"--etcd-servers=http://" + net.JoinHostPort(m.options.Address, "2379"),
		"--bind-address=" + m.options.Address, "--advertise-address=" + m.options.Address, "--secure-port=6443",
		"--endpoint-reconciler-type=none", "--service-cluster-ip-range=10.96.0.0/16",
		"--tls-cert-file=" + m.path("apiserver/tls.crt"), "--tls-private-key-file=" + m.path("apiserver/tls.key"),
		"--client-ca-file=" + m.path("ca.crt"), "--authorization-mode=RBAC",
		"--enable-admission-plugins=OwnerReferencesPermissionEnforcement",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + m.path("sa.key"), "--service-account-signing-key-file=" + m.path("sa.key"),
		"--audit-policy-file=" + m.path("audit.yaml"), "--audit-log-path=" + m.AuditLog,
		"--audit-log-maxsize=10000", // never begun anew: ReadAuditLog reads all of it
	}, func(ctx context.Context) error {
		_, err := clientset.RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		return err
	})
	if err != nil {
		return err
	}
	return m.newClient()
}

func (m *Management) startControllerManager(ctx context.Context) error {
	kubeconfig, err := m.writeKubeconfig("kube-controller-manager", administrators)
	if err != nil {
		return err
	}
	m.ControllerManager, err = m.start(ctx, "kube-controller-manager", "kube-controller-manager", nil, []string{
		"--kubeconfig=" + kubeconfig, "--leader-elect=false", "--secure-port=0", "--controllers=" + controllers,
		"--service-account-private-key-file=" + m.path("sa.key"), "--root-ca-file=" + m.path("ca.crt"),
		// New kinds are garbage collected as soon as possible.
		"--kube-api-qps=100", "--kube-api-burst=200",
	}, func(ctx context.Context) error {
		return m.Client.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "default"}, &corev1.ServiceAccount{})
	})
	return err
}

// getOK is nil if the address answers with 200.
func getOK(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return errors.New(url + " answers " + response.Status)
	}
	return nil
}

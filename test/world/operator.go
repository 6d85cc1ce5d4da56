package world

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capk3s/capk3s/hack/release"
)

// OperatorVersion is the version of the operator that a management cluster
// starts with; NextOperatorVersion can be upgraded to.
const (
	OperatorVersion     = "v0.1.0"
	NextOperatorVersion = "v0.1.1"
)

const operatorImage = "ghcr.io/capk3s/capk3s"

// The Deployments of the two providers.
var (
	bootstrapDeployment    = client.ObjectKey{Namespace: "capi-k3s-bootstrap-system", Name: "capi-k3s-bootstrap-controller-manager"}
	controlPlaneDeployment = client.ObjectKey{Namespace: "capi-k3s-control-plane-system", Name: "capi-k3s-control-plane-controller-manager"}
)

// writeRepository makes releases of the operator for clusterctl and returns its
// configuration of the providers.
func (m *Management) writeRepository() ([]map[string]string, error) {
	providers := []map[string]string{
		{"name": "k3s", "type": "BootstrapProvider", "url": m.repository("bootstrap-k3s", "latest", release.BootstrapComponents)},
		{"name": "k3s", "type": "ControlPlaneProvider", "url": m.repository("control-plane-k3s", "latest", release.ControlPlaneComponents)},
	}
	for _, version := range []string{OperatorVersion, NextOperatorVersion} {
		files, err := release.Repository(release.Options{Version: version, Image: operatorImage})
		if err != nil {
			return nil, err
		}
		for _, provider := range []string{"bootstrap-k3s", "control-plane-k3s"} {
			if err := files.WriteTo(m.repository(provider, version)); err != nil {
				return nil, err
			}
		}
	}
	return providers, nil
}

func (m *Management) repository(elements ...string) string {
	return m.path(filepath.Join(append([]string{"repository"}, elements...)...))
}

// StartOperator runs the operator as its Deployments, in the state that they are
// in now, ask for. Pods that run are ended first.
func (m *Management) StartOperator(ctx context.Context) error {
	for _, provider := range []struct {
		pod **Pod
		key client.ObjectKey
	}{{&m.Bootstrap, bootstrapDeployment}, {&m.ControlPlane, controlPlaneDeployment}} {
		if *provider.pod != nil {
			(*provider.pod).Stop()
		}
		pod, err := m.startPod(ctx, provider.key, m.options.OperatorArgs)
		if err != nil {
			return err
		}
		*provider.pod = pod
	}
	return nil
}

// Operator is the pods of both providers.
func (m *Management) Operator() []*Pod {
	var pods []*Pod
	for _, pod := range []*Pod{m.Bootstrap, m.ControlPlane} {
		if pod != nil {
			pods = append(pods, pod)
		}
	}
	return pods
}

// Metrics reads a pod's metrics as a monitoring system does: over TLS, with the
// token of a service account that may read them.
func (m *Management) Metrics(ctx context.Context, pod *Pod) ([]byte, error) {
	token, err := m.metricsToken(ctx)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("https://%s:8443/metrics", pod.Address), nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	// The certificate is self-signed.
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return nil, fmt.Errorf("reading the metrics of %s: %w", pod.Name, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("reading the metrics of %s: %s", pod.Name, response.Status)
	}
	return io.ReadAll(response.Body)
}

// metricsToken is a token of a service account that may read metrics and
// nothing else.
func (m *Management) metricsToken(ctx context.Context) (string, error) {
	meta := metav1.ObjectMeta{Name: "metrics-reader"}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: meta.Name}}
	for _, object := range []client.Object{
		account,
		&rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: account.Namespace, Name: account.Name}},
		},
	} {
		if err := m.Client.Create(ctx, object); err != nil && !apierrors.IsAlreadyExists(err) {
			return "", fmt.Errorf("letting metrics be read: %w", err)
		}
	}
	return m.serviceAccountToken(ctx, account.Namespace, account.Name)
}

// startOperator runs the operator unless its processes are left to the caller.
func (m *Management) startOperator(ctx context.Context) error {
	if m.options.NoOperator {
		return nil
	}
	return m.StartOperator(ctx)
}

// stopPods ends pods; those that never ran are nil.
func stopPods(pods ...*Pod) {
	for _, pod := range pods {
		if pod != nil {
			pod.Stop()
		}
	}
}

package world

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// run runs a test program to its end, as the management cluster's administrator.
func (m *Management) run(ctx context.Context, stdin []byte, name string, args ...string) ([]byte, error) {
	path, err := Program(name)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+m.Kubeconfig, "XDG_CONFIG_HOME="+m.path("config"), "CLUSTERCTL_DISABLE_VERSIONCHECK=true")
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.Bytes(), fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, stderr.Bytes())
	}
	return stdout.Bytes(), nil
}

// Kubectl runs kubectl against the management cluster and returns what it prints.
func (m *Management) Kubectl(ctx context.Context, args ...string) (string, error) {
	out, err := m.run(ctx, nil, "kubectl", args...)
	return string(out), err
}

// Clusterctl runs clusterctl against the management cluster and returns what it prints.
func (m *Management) Clusterctl(ctx context.Context, args ...string) (string, error) {
	out, err := m.run(ctx, nil, "clusterctl", append(args, "--config="+m.path("clusterctl.yaml"))...)
	return string(out), err
}

// Apply applies manifests, on behalf of a user.
func (m *Management) Apply(ctx context.Context, manifests []byte) error {
	_, err := m.run(ctx, manifests, "kubectl", "apply", "--server-side", "--force-conflicts", "-f", "-")
	return err
}

// install installs the components of Cluster API core and of the operator with
// clusterctl, from a repository of local files, and leads core's webhooks to the
// process that stands in for its Deployment.
func (m *Management) install(ctx context.Context) error {
	components, err := manifest("cluster-api/v*/core-components.yaml")
	if err != nil {
		return err
	}
	certManager, err := manifest("cert-manager/v*/crds.yaml")
	if err != nil {
		return err
	}
	operator, err := m.writeRepository()
	if err != nil {
		return err
	}
	config, err := yaml.Marshal(map[string]any{
		"providers":    append(operator, map[string]string{"name": "cluster-api", "type": "CoreProvider", "url": components}),
		"cert-manager": map[string]string{"externallyProvisioned": "true"},
	})
	if err != nil {
		return fmt.Errorf("encoding clusterctl's configuration: %w", err)
	}
	if err := writeFiles(m.dir, map[string][]byte{"clusterctl.yaml": config}); err != nil {
		return err
	}
	if _, err := m.Kubectl(ctx, "apply", "--server-side", "-f", certManager); err != nil {
		return err
	}
	version := filepath.Base(filepath.Dir(components))
	if _, err := m.Clusterctl(ctx, "init", "--core=cluster-api:"+version,
		"--bootstrap=k3s:"+OperatorVersion, "--control-plane=k3s:"+OperatorVersion); err != nil {
		return err
	}
	return m.redirectWebhooks(ctx)
}

// manifest finds the one file in the cache that matches the pattern.
func manifest(pattern string) (string, error) {
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	found, err := filepath.Glob(filepath.Join(cache, "manifests", pattern))
	if err != nil {
		return "", fmt.Errorf("looking for %s: %w", pattern, err)
	}
	if len(found) == 0 {
		return "", fmt.Errorf("%s is missing: run \"make test-binaries\"", pattern)
	}
	return found[len(found)-1], nil
}

// redirectWebhooks replaces the services of core's webhooks, of which there are
// none, by the address of the process. (An EndpointSlice can't do it: it may
// hold no loopback address.)
func (m *Management) redirectWebhooks(ctx context.Context) error {
	selector := client.MatchingLabels{clusterv1.ProviderNameLabel: "cluster-api"}
	mutating, validating := &admissionv1.MutatingWebhookConfigurationList{}, &admissionv1.ValidatingWebhookConfigurationList{}
	crds := &apiextensionsv1.CustomResourceDefinitionList{}
	for _, list := range []client.ObjectList{mutating, validating, crds} {
		if err := m.Client.List(ctx, list, selector); err != nil {
			return fmt.Errorf("listing webhooks: %w", err)
		}
	}
	var changed []client.Object
	for i := range mutating.Items {
		for j := range mutating.Items[i].Webhooks {
			m.redirect(&mutating.Items[i].Webhooks[j].ClientConfig)
		}
		changed = append(changed, &mutating.Items[i])
	}
	for i := range validating.Items {
		for j := range validating.Items[i].Webhooks {
			m.redirect(&validating.Items[i].Webhooks[j].ClientConfig)
		}
		changed = append(changed, &validating.Items[i])
	}
	for i := range crds.Items {
		conversion := crds.Items[i].Spec.Conversion
		if conversion == nil || conversion.Webhook == nil || conversion.Webhook.ClientConfig.Service == nil {
			continue
		}
		path := ptr.Deref(conversion.Webhook.ClientConfig.Service.Path, "")
		conversion.Webhook.ClientConfig = &apiextensionsv1.WebhookClientConfig{URL: m.webhookURL(path), CABundle: m.ca.pem}
		changed = append(changed, &crds.Items[i])
	}
	for _, obj := range changed {
		if err := m.Client.Update(ctx, obj); err != nil {
			return fmt.Errorf("redirecting the webhooks of %s: %w", obj.GetName(), err)
		}
	}
	return nil
}

func (m *Management) redirect(config *admissionv1.WebhookClientConfig) {
	if config.Service == nil {
		return
	}
	*config = admissionv1.WebhookClientConfig{URL: m.webhookURL(ptr.Deref(config.Service.Path, "")), CABundle: m.ca.pem}
}

func (m *Management) webhookURL(path string) *string {
	return ptr.To("https://" + net.JoinHostPort(m.options.Address, m.webhookPort()) + path)
}

// webhookPort follows from the address, since core listens on all of them: 9443
// for the first management cluster, 9444 for the second.
func (m *Management) webhookPort() string {
	address := net.ParseIP(m.options.Address).To4()
	return strconv.Itoa(9442 + int(address[3]))
}

func (m *Management) startCore(ctx context.Context) error {
	kubeconfig, err := m.writeKubeconfig("cluster-api-core", administrators)
	if err != nil {
		return err
	}
	health := net.JoinHostPort(m.options.Address, "9440")
	m.Core, err = m.start(ctx, "cluster-api-core", "cluster-api-core",
		[]string{"POD_NAMESPACE=capi-system", "POD_NAME=capi-controller-manager", "POD_UID=00000000-0000-0000-0000-000000000000"},
		[]string{
			"--kubeconfig=" + kubeconfig, "--leader-elect=false", "--feature-gates=ClusterTopology=true,MachinePool=true",
			"--webhook-port=" + m.webhookPort(), "--webhook-cert-dir=" + m.path("webhook"),
			"--health-addr=" + health, "--diagnostics-address=" + net.JoinHostPort(m.options.Address, "8081"), "--insecure-diagnostics",
		},
		func(ctx context.Context) error {
			return errors.Join(getOK(ctx, "http://"+health+"/readyz"), getOK(ctx, "http://"+health+"/healthz"))
		})
	return err
}

func (m *Management) startSandbox(ctx context.Context) error {
	if err := m.applyFolder(ctx, "test/sandbox/config/crd"); err != nil {
		return err
	}
	kubeconfig, err := m.writeKubeconfig("sandbox-manager", administrators)
	if err != nil {
		return err
	}
	endpoints, err := m.endpoints()
	if err != nil {
		return err
	}
	health := net.JoinHostPort(m.options.Address, "9442")
	m.Sandbox, err = m.start(ctx, "sandbox-manager", "sandbox-manager", nil, []string{
		"--kubeconfig=" + kubeconfig, "--health-addr=" + health,
		"--dir=" + m.Host.Dir, "--log-dir=" + m.Host.LogDir, "--bin-dir=" + m.Host.BinDir, "--assets-dir=" + m.Host.AssetsDir,
		"--k3s-binary=" + m.Host.K3sBinary, "--k3s-versions=" + strings.Join(m.Host.Versions, ","),
		"--bridge=" + m.Host.Bridge, "--subnet=" + m.Host.Subnet.String(), "--endpoints=" + endpoints.String(),
		"--restart-delay=" + m.Host.RestartDelay.String(),
	}, func(ctx context.Context) error { return getOK(ctx, "http://"+health+"/readyz") })
	return err
}

// endpoints are an eighth of the world's, since each provider knows only of its
// own: a cluster that is moved keeps its endpoint.
func (m *Management) endpoints() (netip.Prefix, error) {
	nth := net.ParseIP(m.options.Address).To4()[3]
	if nth < 1 || nth > 8 {
		return netip.Prefix{}, fmt.Errorf("a world has endpoints for eight management clusters, and none for the one at %s", m.options.Address)
	}
	first := Endpoints.Masked().Addr().As4()
	first[3] = 32 * (nth - 1)
	return netip.PrefixFrom(netip.AddrFrom4(first), 27), nil
}

// applyFolder applies a kustomize folder of this repository and waits until its
// CRDs are served.
func (m *Management) applyFolder(ctx context.Context, folder string) error {
	repository, err := Repository()
	if err != nil {
		return err
	}
	if _, err := m.Kubectl(ctx, "apply", "--server-side", "-k", filepath.Join(repository, folder)); err != nil {
		return err
	}
	_, err = m.Kubectl(ctx, "wait", "--for=condition=Established", "crd", "--all")
	return err
}

//go:build e2e

package peer

import (
	"os"
	"path/filepath"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/cluster-api/test/e2e"
	"sigs.k8s.io/cluster-api/test/framework"
	"sigs.k8s.io/cluster-api/test/framework/clusterctl"
	"sigs.k8s.io/yaml"
)

const (
	version = "v1.36.3+k3s1"

	// infrastructure names the sandbox's version, since clusterctl didn't install it.
	infrastructure = "sandbox:v0.1.0"
)

// The flavors of the cluster template.
const (
	plain       = ""
	remediation = "md-remediation"
	topology    = "topology"
	serversOnly = "topology-servers-only"
)

// flavors are the files that make up each flavor.
var flavors = map[string][]string{
	plain:       {"cluster.yaml"},
	remediation: {"cluster.yaml", "health-check.yaml"},
	topology:    {"topology.yaml"},
	serversOnly: {"topology-servers-only.yaml"},
}

// What the specs ask for.
var (
	proxy            framework.ClusterProxy
	clusterctlConfig string
	artifacts        string
)

var config = &clusterctl.E2EConfig{
	Variables: map[string]string{e2e.KubernetesVersion: version},
	// How long a step may take on a busy machine with two cores.
	Intervals: map[string][]string{
		"default/wait-cluster":                         {"15m", "1s"},
		"default/wait-control-plane":                   {"15m", "1s"},
		"default/wait-worker-nodes":                    {"15m", "1s"},
		"default/wait-delete-cluster":                  {"15m", "1s"},
		"default/wait-machine-upgrade":                 {"15m", "1s"},
		"default/wait-machine-remediation":             {"15m", "1s"},
		"default/wait-resource-versions-become-stable": {"5m", "5s"},
		"default/wait-resource-versions-remain-stable": {"1m", "5s"},
	},
}

var _ = ginkgo.BeforeSuite(func() {
	scheme := runtime.NewScheme()
	framework.TryAddDefaultSchemes(scheme)
	proxy = framework.NewClusterProxy("management", management.Kubeconfig, scheme,
		framework.WithRESTConfigModifier(func(c *rest.Config) { c.QPS = -1 }))
	artifacts = filepath.Join(here.LogDir, "peer")
	clusterctlConfig = writeRepository(filepath.Join(here.Dir, "peer"))
})

// writeRepository makes a repository of the sandbox's templates for clusterctl and returns the path of its
// configuration.
func writeRepository(folder string) string {
	releases := filepath.Join(folder, "infrastructure-sandbox", "v0.1.0")
	gomega.Expect(os.MkdirAll(releases, 0o755)).To(gomega.Succeed())
	for flavor, files := range flavors {
		name := "cluster-template.yaml"
		if flavor != plain {
			name = "cluster-template-" + flavor + ".yaml"
		}
		compose(filepath.Join(releases, name), files...)
	}
	// clusterctl adds the ClusterClass that a template asks for.
	compose(filepath.Join(releases, "clusterclass-k3s.yaml"), "class.yaml", "class-templates.yaml", "class-worker-templates.yaml")
	compose(filepath.Join(releases, "clusterclass-k3s-servers-only.yaml"), "class-servers-only.yaml", "class-templates.yaml")

	content, err := yaml.Marshal(map[string]any{"providers": []map[string]string{{
		"name": "sandbox", "type": "InfrastructureProvider", "url": filepath.Join(releases, "infrastructure-components.yaml"),
	}}})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	path := filepath.Join(folder, "clusterctl.yaml")
	gomega.Expect(os.WriteFile(path, content, 0o600)).To(gomega.Succeed())
	return path
}

// compose writes templates one after the other into a file.
func compose(path string, templates ...string) {
	var all []byte
	for _, template := range templates {
		content, err := os.ReadFile(filepath.Join("templates", template))
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		all = append(append(all, "---\n"...), content...)
	}
	gomega.Expect(os.WriteFile(path, all, 0o600)).To(gomega.Succeed())
}

//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/capk3s/capk3s/test/world"
)

// clusterClass reads the ClusterClass that is released, with its templates, and puts the sandbox in the place of
// docker: what only docker has goes, and kubelet gets the provider id that docker's cloud provider would set.
// The control plane and the MachineDeployment get the name of the Cluster.
func clusterClass(t testing.TB, namespace string) []*unstructured.Unstructured {
	t.Helper()
	repository, err := world.Repository()
	require.NoError(t, err)
	released, err := os.ReadFile(filepath.Join(repository, "config", "templates", "clusterclass-k3s.yaml"))
	require.NoError(t, err)
	sandbox := strings.NewReplacer(
		"Docker", "Sandbox", "infrastructure.cluster.x-k8s.io/v1beta2", "infrastructure.cluster.x-k8s.io/v1beta1",
	).Replace(string(released))

	var objects []*unstructured.Unstructured
	for document := range strings.SplitSeq(sandbox, "\n---\n") {
		object := &unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal([]byte(document), object))
		object.SetNamespace(namespace)
		set := func(value any, path ...string) {
			require.NoError(t, unstructured.SetNestedField(object.Object, value, path...))
		}
		kubelet := []any{"provider-id={{ ds.meta_data.provider_id }}"}
		switch object.GetKind() {
		case "ConfigMap":
			continue // of docker's load balancer
		case "ClusterClass":
			dropNamed(t, object, "nodeImage", "spec", "patches")
			dropNamed(t, object, "nodeImage", "spec", "variables")
			nameAfterCluster(t, object)
		case "SandboxClusterTemplate":
			set(map[string]any{}, "spec", "template", "spec")
		case "KThreesControlPlaneTemplate":
			set(kubelet, "spec", "template", "spec", "kthreesConfigSpec", "agentConfig", "kubeletArgs")
		case "KThreesConfigTemplate":
			set(kubelet, "spec", "template", "spec", "agentConfig", "kubeletArgs")
		}
		objects = append(objects, object)
	}
	slices.Reverse(objects) // the ClusterClass comes after what it names
	return objects
}

// dropNamed takes the element of a name out of a list.
func dropNamed(t testing.TB, object *unstructured.Unstructured, name string, path ...string) {
	t.Helper()
	list, _, err := unstructured.NestedSlice(object.Object, path...)
	require.NoError(t, err)
	rest := slices.DeleteFunc(slices.Clone(list), func(element any) bool { return element.(map[string]any)["name"] == name })
	require.Len(t, rest, len(list)-1, "there is one %s", name)
	require.NoError(t, unstructured.SetNestedSlice(object.Object, rest, path...))
}

// nameAfterCluster has a ClusterClass name what it makes after the Cluster.
func nameAfterCluster(t testing.TB, class *unstructured.Unstructured) {
	t.Helper()
	naming := map[string]any{"template": "{{ .cluster.name }}"}
	require.NoError(t, unstructured.SetNestedMap(class.Object, naming, "spec", "controlPlane", "naming"))
	workers, _, err := unstructured.NestedSlice(class.Object, "spec", "workers", "machineDeployments")
	require.NoError(t, err)
	for _, worker := range workers {
		worker.(map[string]any)["naming"] = naming
	}
	require.NoError(t, unstructured.SetNestedSlice(class.Object, workers, "spec", "workers", "machineDeployments"))
}

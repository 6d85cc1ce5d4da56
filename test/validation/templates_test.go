package validation

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
)

// flavour is what a template must make of its infrastructure: docs/templates.md has the same in a table.
type flavour struct {
	// infrastructure is the API version of its objects, cluster and machine are their kinds.
	infrastructure, cluster, machine string
	// providerID and cloudProvider are what all nodes are told. Where both are empty, the infrastructure provider sets
	// the provider id.
	providerID, cloudProvider string
	// endpoint is true if the machines hold the endpoint's address themselves.
	endpoint bool
}

const external = "external"

var flavours = map[string]flavour{
	"docker":    {infrastructure: "v1beta2", cluster: "DockerCluster", machine: "DockerMachineTemplate"},
	"aws":       {infrastructure: "v1beta2", cluster: "AWSCluster", machine: "AWSMachineTemplate", cloudProvider: external},
	"azure":     {infrastructure: "v1beta1", cluster: "AzureCluster", machine: "AzureMachineTemplate", cloudProvider: external},
	"vsphere":   {infrastructure: "v1beta1", cluster: "VSphereCluster", machine: "VSphereMachineTemplate", cloudProvider: external, endpoint: true},
	"openstack": {infrastructure: "v1beta1", cluster: "OpenStackCluster", machine: "OpenStackMachineTemplate", cloudProvider: external},
	"proxmox": {
		infrastructure: "v1alpha1", cluster: "ProxmoxCluster", machine: "ProxmoxMachineTemplate",
		providerID: "proxmox://{{ ds.meta_data.instance_id }}", endpoint: true,
	},
	"hetzner": {infrastructure: "v1beta1", cluster: "HetznerCluster", machine: "HCloudMachineTemplate", cloudProvider: external},
	"nutanix": {infrastructure: "v1beta1", cluster: "NutanixCluster", machine: "NutanixMachineTemplate", cloudProvider: external, endpoint: true},
}

// templateVariables are the values of those variables that have no default.
var templateVariables = map[string]string{
	"AWS_REGION": "eu-central-1", "AWS_AMI_ID": "ami-0123456789abcdef0",
	"AZURE_SUBSCRIPTION_ID": "00000000-0000-0000-0000-000000000000", "AZURE_LOCATION": "westeurope",
	"CONTROL_PLANE_ENDPOINT_IP": "192.0.2.10",
	"VSPHERE_SERVER":            "vcenter.example.com", "VSPHERE_DATACENTER": "dc", "VSPHERE_DATASTORE": "store",
	"VSPHERE_TEMPLATE": "ubuntu", "VSPHERE_NETWORK": "net",
	"OPENSTACK_CLOUD": "cloud", "OPENSTACK_EXTERNAL_NETWORK_ID": "00000000-0000-0000-0000-000000000000",
	"OPENSTACK_DNS_NAMESERVER": "192.0.2.53", "OPENSTACK_IMAGE_NAME": "ubuntu",
	"OPENSTACK_CONTROL_PLANE_MACHINE_FLAVOR": "m", "OPENSTACK_WORKER_MACHINE_FLAVOR": "m",
	"NODE_IP_RANGE": "192.0.2.20-192.0.2.40", "GATEWAY": "192.0.2.1", "DNS_SERVER": "192.0.2.53",
	"PROXMOX_SOURCENODE": "pve", "TEMPLATE_VMID": "100",
	"HCLOUD_SSH_KEY":   "key",
	"NUTANIX_ENDPOINT": "prism.example.com", "NUTANIX_PRISM_ELEMENT_CLUSTER_NAME": "pe", "NUTANIX_SUBNET_NAME": "net",
	"NUTANIX_MACHINE_TEMPLATE_IMAGE_NAME": "ubuntu",
}

const templatesFolder = "../../config/templates"

// Who adds a file adds it here, too, and to the docs.
func TestTemplates_AreAllTested(t *testing.T) {
	names := []string{"clusterclass-k3s.yaml", "cluster-template-docker-topology.yaml"}
	for name := range flavours {
		names = append(names, "cluster-template-"+name+".yaml")
	}
	entries, err := os.ReadDir(templatesFolder)
	require.NoError(t, err)
	doc, err := os.ReadFile("../../docs/templates.md")
	require.NoError(t, err)
	var files []string
	for _, entry := range entries {
		files = append(files, entry.Name())
		name := strings.TrimSuffix(strings.TrimPrefix(entry.Name(), "cluster-template-"), ".yaml")
		assert.True(t, strings.Contains(string(doc), "`"+name+"`"), "docs/templates.md doesn't tell of %s", name)
	}
	assert.ElementsMatch(t, names, files)
}

func TestTemplates_MakeClustersThatAreAccepted(t *testing.T) {
	for name, want := range flavours {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := env.Namespace(t)
			objs := generate(t, namespace, "cluster-template-"+name+".yaml")
			requireAccepted(t, namespace, objs)
			requireReferences(t, objs)

			infrastructure := "infrastructure.cluster.x-k8s.io/" + want.infrastructure
			one(t, objs, infrastructure, want.cluster, "example")
			servers := one(t, objs, "controlplane.cluster.x-k8s.io/v1beta3", "KThreesControlPlane", "example-control-plane")
			workers := one(t, objs, "bootstrap.cluster.x-k8s.io/v1beta3", "KThreesConfigTemplate", "example-md-0")
			for _, role := range []string{"control-plane", "md-0"} {
				one(t, objs, infrastructure, want.machine, "example-"+role)
			}
			server := configAt(t, servers, "spec", "kthreesConfigSpec")
			for _, config := range []bootstrapv1.KThreesConfigSpec{server, configAt(t, workers, "spec", "template", "spec")} {
				assert.Equal(t, want.providerID, config.AgentConfig.ProviderID)
				assert.Equal(t, want.cloudProvider, config.AgentConfig.CloudProvider)
			}
			require.NotNil(t, server.ServerConfig.DisableCloudController)
			assert.True(t, *server.ServerConfig.DisableCloudController)
			requireVirtualAddress(t, namespace, server, want.endpoint)
			replicas, _, err := unstructured.NestedInt64(servers.Object, "spec", "replicas")
			require.NoError(t, err)
			assert.EqualValues(t, 3, replicas)
		})
	}
}

func TestTemplates_AClusterOfTheClusterClassIsAccepted(t *testing.T) {
	namespace := env.Namespace(t)
	class := objectsIn(t, filepath.Join(templatesFolder, "clusterclass-k3s.yaml"))
	requireReferences(t, class)
	for _, obj := range class {
		obj.SetNamespace(namespace)
	}
	requireAccepted(t, namespace, class)

	objs := generate(t, namespace, "cluster-template-docker-topology.yaml")
	requireAccepted(t, namespace, objs)
	cluster, kept := &clusterv1.Cluster{}, &clusterv1.ClusterClass{}
	convert(t, one(t, objs, "cluster.x-k8s.io/v1beta2", "Cluster", "example").Object, cluster)
	convert(t, one(t, class, "cluster.x-k8s.io/v1beta2", "ClusterClass", cluster.Spec.Topology.ClassRef.Name).Object, kept)
	assert.Equal(t, "v1.36.3+k3s1", cluster.Spec.Topology.Version)
	for _, deployment := range cluster.Spec.Topology.Workers.MachineDeployments {
		assert.Equal(t, kept.Spec.Workers.MachineDeployments[0].Class, deployment.Class)
	}
}

// generate renders a template with clusterctl, as a user would.
func generate(t *testing.T, namespace, file string) []*unstructured.Unstructured {
	t.Helper()
	folder := t.TempDir()
	config := filepath.Join(folder, "clusterctl.yaml")
	content, err := yaml.Marshal(templateVariables)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(config, content, 0o600))
	cmd := exec.Command(filepath.Join(env.Binaries(), "clusterctl"), "generate", "cluster", "example",
		"--from", filepath.Join(templatesFolder, file), "--config", config, "--target-namespace", namespace,
		"--kubernetes-version", "v1.36.3+k3s1", "--control-plane-machine-count", "3", "--worker-machine-count", "2")
	cmd.Env = []string{"HOME=" + folder, "CLUSTERCTL_DISABLE_VERSIONCHECK=true"}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, stderr.String())
	return decode(t, out)
}

// requireAccepted lets the API server check the objects of kinds that it knows, unknown fields included: all but those
// of infrastructure providers.
func requireAccepted(t *testing.T, namespace string, objs []*unstructured.Unstructured) {
	t.Helper()
	strict := client.WithFieldValidation(env.Client, "Strict")
	for _, obj := range objs {
		assert.Equal(t, namespace, obj.GetNamespace(), obj.GetName())
		if obj.GroupVersionKind().Group == "infrastructure.cluster.x-k8s.io" {
			continue
		}
		require.NoError(t, strict.Create(context.Background(), obj.DeepCopy(), client.DryRunAll), "%s %s", obj.GetKind(), obj.GetName())
	}
}

// requireReferences checks that what an object refers to is among the objects, and that each object but the top ones is
// referred to.
func requireReferences(t *testing.T, objs []*unstructured.Unstructured) {
	t.Helper()
	named := map[string]bool{}
	for _, obj := range objs {
		named[obj.GetKind()+" "+obj.GetName()] = false
	}
	for _, obj := range objs {
		walk(obj.Object["spec"], func(key string, ref map[string]any) {
			kind, _ := ref["kind"].(string)
			name, _ := ref["name"].(string)
			switch key {
			case "controlPlaneRef", "infrastructureRef", "configRef", "templateRef":
			case "customHAProxyConfigTemplateRef":
				kind = "ConfigMap"
			default:
				return
			}
			assert.Contains(t, named, kind+" "+name, "%s of %s", key, obj.GetName())
			named[kind+" "+name] = true
		})
	}
	for name, referred := range named {
		kind, _, _ := strings.Cut(name, " ")
		assert.True(t, referred || kind == "Cluster" || kind == "MachineDeployment" || kind == "ClusterClass", "nobody refers to %s", name)
	}
}

func walk(value any, visit func(key string, value map[string]any)) {
	switch value := value.(type) {
	case map[string]any:
		for key, inner := range value {
			if object, ok := inner.(map[string]any); ok {
				visit(key, object)
			}
			walk(inner, visit)
		}
	case []any:
		for _, inner := range value {
			walk(inner, visit)
		}
	}
}

// requireVirtualAddress checks the pod that holds the endpoint's address.
func requireVirtualAddress(t *testing.T, namespace string, config bootstrapv1.KThreesConfigSpec, want bool) {
	t.Helper()
	if !want {
		require.Empty(t, config.Files)
		return
	}
	require.Len(t, config.Files, 1)
	require.Equal(t, "/var/lib/rancher/k3s/agent/pod-manifests", filepath.Dir(config.Files[0].Path))
	objs := decode(t, []byte(config.Files[0].Content))
	require.Len(t, objs, 1)
	objs[0].SetNamespace(namespace)
	requireAccepted(t, namespace, objs)
	pod := &corev1.Pod{}
	convert(t, objs[0].Object, pod)
	require.Contains(t, pod.Spec.Containers[0].Env, corev1.EnvVar{Name: "address", Value: templateVariables["CONTROL_PLANE_ENDPOINT_IP"]})
}

// one returns the object of that kind and name.
func one(t *testing.T, objs []*unstructured.Unstructured, apiVersion, kind, name string) *unstructured.Unstructured {
	t.Helper()
	for _, obj := range objs {
		if obj.GetAPIVersion() == apiVersion && obj.GetKind() == kind && obj.GetName() == name {
			return obj
		}
	}
	require.Failf(t, "missing", "%s %s %s", apiVersion, kind, name)
	return nil
}

func configAt(t *testing.T, obj *unstructured.Unstructured, fields ...string) bootstrapv1.KThreesConfigSpec {
	t.Helper()
	config := bootstrapv1.KThreesConfigSpec{}
	content, _, err := unstructured.NestedMap(obj.Object, fields...)
	require.NoError(t, err)
	convert(t, content, &config)
	return config
}

func convert(t *testing.T, from map[string]any, to any) {
	t.Helper()
	content, err := yaml.Marshal(from)
	require.NoError(t, err)
	require.NoError(t, yaml.UnmarshalStrict(content, to))
}

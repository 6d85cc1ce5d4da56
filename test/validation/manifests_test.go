package validation

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/yamlprocessor"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capk3s/capk3s/hack/release"
)

// providers are the two sets of components that clusterctl installs.
var providers = []struct {
	file, label, namespace, controllers, group string
}{
	{release.BootstrapComponents, "bootstrap-k3s", "capi-k3s-bootstrap-system", "--controllers=bootstrap", "bootstrap.cluster.x-k8s.io"},
	{release.ControlPlaneComponents, "control-plane-k3s", "capi-k3s-control-plane-system", "--controllers=controlplane", "controlplane.cluster.x-k8s.io"},
}

func TestManifests_FollowTheContractOfClusterctl(t *testing.T) {
	for _, provider := range providers {
		t.Run(provider.label, func(t *testing.T) {
			kinds := map[string]int{}
			for _, obj := range components(t, provider.file, nil) {
				name := obj.GetKind() + " " + obj.GetName()
				kinds[obj.GetKind()]++
				assert.Equal(t, provider.label, obj.GetLabels()["cluster.x-k8s.io/provider"], name)
				switch obj.GetKind() {
				case "Namespace":
					assert.Equal(t, provider.namespace, obj.GetName())
				case "CustomResourceDefinition":
					assert.True(t, strings.HasSuffix(obj.GetName(), "."+provider.group), "%s belongs to the other provider", name)
				case "ClusterRole", "ClusterRoleBinding":
					assert.True(t, strings.HasPrefix(obj.GetName(), provider.namespace+"-"), "clusterctl delete would leave %s", name)
				default:
					assert.Equal(t, provider.namespace, obj.GetNamespace(), name)
				}
			}
			assert.Equal(t, 1, kinds["Namespace"])
			assert.Equal(t, 1, kinds["Deployment"])
			assert.Equal(t, 2, kinds["CustomResourceDefinition"])
		})
	}
}

// The real API server checks the objects, and that pods as the Deployment makes them are allowed where Pod Security
// Admission enforces the restricted standard.
func TestManifests_AreAcceptedByTheAPIServer(t *testing.T) {
	ctx := context.Background()
	strict := client.WithFieldValidation(env.Client, metav1.FieldValidationStrict)
	for _, provider := range providers {
		t.Run(provider.label, func(t *testing.T) {
			objs := components(t, provider.file, nil)
			for _, obj := range objs {
				if obj.GetKind() != "CustomResourceDefinition" {
					require.NoError(t, strict.Create(ctx, obj), "%s %s", obj.GetKind(), obj.GetName())
					continue
				}
				// These are there, since all tests need them: clusterctl's variables have left them as they were.
				there := getCRD(t, obj.Object["spec"].(map[string]any)["names"].(map[string]any)["kind"].(string))
				obj.SetResourceVersion(there.ResourceVersion)
				require.NoError(t, strict.Update(ctx, obj, client.DryRunAll), obj.GetName())
				assert.Equal(t, there.Generation, obj.GetGeneration(), "%s differs", obj.GetName())
			}
			deployment := deploymentOf(t, objs)
			container := deployment.Spec.Template.Spec.Containers[0]
			assert.Equal(t, "manager", container.Name, "clusterctl waits for this container")
			assert.Contains(t, container.Args, provider.controllers)

			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: provider.namespace, GenerateName: "manager-"},
				Spec:       deployment.Spec.Template.Spec,
			}
			require.NoError(t, env.Client.Create(ctx, pod))
			assert.Equal(t, "restricted", namespaceOf(t, provider.namespace).Labels["pod-security.kubernetes.io/enforce"])
		})
	}
}

// components are what clusterctl would install of a release, with its variables as given or their defaults.
func components(t *testing.T, file string, variables map[string]string) []*unstructured.Unstructured {
	t.Helper()
	files, err := release.Repository(release.Options{Version: "v0.1.0", Image: "ghcr.io/capk3s/capk3s"})
	require.NoError(t, err)
	content, err := yamlprocessor.NewSimpleProcessor().Process(files[file], func(name string) (string, error) {
		if value, ok := variables[name]; ok {
			return value, nil
		}
		return "", fmt.Errorf("%s isn't set", name)
	})
	require.NoError(t, err)
	return decode(t, content)
}

func TestManifests_HaveVariablesWithDefaults(t *testing.T) {
	for _, provider := range providers {
		t.Run(provider.label, func(t *testing.T) {
			args := func(variables map[string]string) []string {
				return deploymentOf(t, components(t, provider.file, variables)).Spec.Template.Spec.Containers[0].Args
			}
			assert.Subset(t, args(nil), []string{
				"--concurrency=10", "--v=0", "--feature-gates=MachinePool=true,MachineTaintPropagation=false",
				"--diagnostics-address=:8443", "--insecure-diagnostics=false",
			})
			assert.Subset(t, args(map[string]string{
				"CAPK3S_CONCURRENCY": "50", "CAPK3S_LOG_LEVEL": "5", "EXP_MACHINE_POOL": "false", "EXP_MACHINE_TAINT_PROPAGATION": "true",
				"CAPI_DIAGNOSTICS_ADDRESS": "localhost:8080", "CAPI_INSECURE_DIAGNOSTICS": "true",
			}), []string{
				"--concurrency=50", "--v=5", "--feature-gates=MachinePool=false,MachineTaintPropagation=true",
				"--diagnostics-address=localhost:8080", "--insecure-diagnostics=true",
			})
		})
	}
}

func deploymentOf(t *testing.T, objs []*unstructured.Unstructured) *appsv1.Deployment {
	t.Helper()
	deployment := &appsv1.Deployment{}
	for _, obj := range objs {
		if obj.GetKind() == "Deployment" {
			require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, deployment))
		}
	}
	require.NotEmpty(t, deployment.Spec.Template.Spec.Containers)
	return deployment
}

func namespaceOf(t *testing.T, name string) *corev1.Namespace {
	t.Helper()
	namespace := &corev1.Namespace{}
	require.NoError(t, env.Client.Get(context.Background(), client.ObjectKey{Name: name}, namespace))
	return namespace
}

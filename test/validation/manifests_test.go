package validation

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// providers are the two sets of components that clusterctl installs.
var providers = []struct {
	folder, label, namespace, controllers, group string
}{
	{"bootstrap", "bootstrap-k3s", "capi-k3s-bootstrap-system", "--controllers=bootstrap", "bootstrap.cluster.x-k8s.io"},
	{"controlplane", "control-plane-k3s", "capi-k3s-control-plane-system", "--controllers=controlplane", "controlplane.cluster.x-k8s.io"},
}

func TestManifests_FollowTheContractOfClusterctl(t *testing.T) {
	for _, provider := range providers {
		t.Run(provider.folder, func(t *testing.T) {
			kinds := map[string]int{}
			for _, obj := range components(t, provider.folder) {
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
	for _, provider := range providers {
		t.Run(provider.folder, func(t *testing.T) {
			objs := components(t, provider.folder)
			for _, obj := range objs {
				if obj.GetKind() != "CustomResourceDefinition" { // these are there, since all tests need them
					require.NoError(t, env.Client.Create(ctx, obj), "%s %s", obj.GetKind(), obj.GetName())
				}
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

func components(t *testing.T, folder string) []*unstructured.Unstructured {
	t.Helper()
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), "../../config/"+folder)
	require.NoError(t, err)
	var objs []*unstructured.Unstructured
	for _, resource := range built.Resources() {
		content, err := resource.Map()
		require.NoError(t, err)
		objs = append(objs, &unstructured.Unstructured{Object: content})
	}
	return objs
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

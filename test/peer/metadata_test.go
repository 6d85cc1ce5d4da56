//go:build e2e

package peer

import (
	"context"
	"maps"

	"github.com/onsi/ginkgo/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlcluster "sigs.k8s.io/cluster-api/cmd/clusterctl/client/cluster"
	"sigs.k8s.io/cluster-api/test/framework"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
	infrav1 "github.com/capk3s/capk3s/test/sandbox/api/v1beta1"
)

// assertions say by kind whether the owners of an object are as they should be.
type assertions = map[string]func(types.NamespacedName, []metav1.OwnerReference) error

// wantOwners are the owners of our kinds and of what they own. A class makes the Cluster the controller of what it is
// made of.
func wantOwners(topology bool) assertions {
	core := clusterv1.GroupVersion.String()
	var (
		cluster      = owners(metav1.OwnerReference{APIVersion: core, Kind: "Cluster"})
		class        = owners(metav1.OwnerReference{APIVersion: core, Kind: "ClusterClass"})
		controlPlane = controller(controlplanev1.GroupVersion.String(), "KThreesControlPlane")
		config       = controller(bootstrapv1.GroupVersion.String(), "KThreesConfig")
		machine      = controller(core, "Machine")
		part         = cluster
	)
	if topology {
		part = controller(core, "Cluster")
	}
	want := maps.Clone(framework.CoreOwnerReferenceAssertion)
	maps.Copy(want, assertions{
		"Machine":                     oneOf(controlPlane, controller(core, "MachineSet")),
		"KThreesControlPlane":         oneOf(part),
		"KThreesControlPlaneTemplate": oneOf(class),
		"KThreesConfig":               oneOf(machine),
		"KThreesConfigTemplate":       oneOf(cluster, class),
		"SandboxCluster":              oneOf(part),
		"SandboxClusterTemplate":      oneOf(class),
		"SandboxMachine":              oneOf(machine),
		"SandboxMachineTemplate":      oneOf(cluster, class),
		// Token, CAs and kubeconfig; bootstrap data.
		"Secret": oneOf(controlPlane, config),
	})
	return want
}

func owners(refs ...metav1.OwnerReference) []metav1.OwnerReference { return refs }

func controller(apiVersion, kind string) []metav1.OwnerReference {
	return owners(metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Controller: ptr.To(true)})
}

func oneOf(want ...[]metav1.OwnerReference) func(types.NamespacedName, []metav1.OwnerReference) error {
	return func(_ types.NamespacedName, got []metav1.OwnerReference) error {
		return framework.HasOneOfExactOwners(got, want...)
	}
}

// wantFinalizers are those of our kinds; kinds that aren't here have none.
var wantFinalizers = map[string]func(types.NamespacedName) []string{
	"KThreesControlPlane": finalizer(controlplanev1.Finalizer),
	"SandboxCluster":      finalizer(infrav1.ClusterFinalizer),
	"SandboxMachine":      finalizer(infrav1.MachineFinalizer),
}

func finalizer(name string) func(types.NamespacedName) []string {
	return func(types.NamespacedName) []string { return []string{name} }
}

// checkMetadata does what Cluster API's quick start does with a cluster that is there: owner references and finalizers
// that are taken away come back, and then nothing is written any more.
func checkMetadata(topology bool) func(framework.ClusterProxy, string, string) {
	return func(proxy framework.ClusterProxy, namespace, name string) {
		ctx, ofCluster := context.Background(), clusterctlcluster.FilterClusterObjectsWithNameFilter(name)
		finalizers := framework.CoreFinalizersAssertionWithLegacyClusters
		if topology {
			finalizers = framework.CoreFinalizersAssertionWithClassyClusters
		}
		ginkgo.By("Checking that owner references are resilient")
		framework.ValidateOwnerReferencesResilience(ctx, proxy, namespace, name, ofCluster, wantOwners(topology))
		ginkgo.By("Checking that owner references are updated to the correct API version")
		framework.ValidateOwnerReferencesOnUpdate(ctx, proxy, namespace, name, ofCluster, wantOwners(topology))
		ginkgo.By("Checking that finalizers are resilient")
		framework.ValidateFinalizersResilience(ctx, proxy, namespace, name, ofCluster, finalizers, wantFinalizers)
		checkStable(proxy, namespace, name)
	}
}

// checkStable looks whether a cluster that nothing happens to is left alone.
func checkStable(proxy framework.ClusterProxy, namespace, name string) {
	ginkgo.By("Checking that resourceVersions are stable")
	framework.ValidateResourceVersionStable(context.Background(), framework.ValidateResourceVersionStableInput{
		ClusterProxy: proxy, Namespace: namespace,
		OwnerGraphFilterFunction: clusterctlcluster.FilterClusterObjectsWithNameFilter(name),
		WaitToBecomeStable:       config.GetIntervals("quick-start", "wait-resource-versions-become-stable"),
		WaitToRemainStable:       config.GetIntervals("quick-start", "wait-resource-versions-remain-stable"),
	})
}

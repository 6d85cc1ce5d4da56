//go:build e2e

package peer

import (
	"context"
	"slices"

	"github.com/onsi/ginkgo/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/test/e2e"
	"sigs.k8s.io/cluster-api/test/framework"
)

var _ = ginkgo.Describe("QuickStart", func() {
	quickStart(plain, 1, checkMetadata(false))
})

var _ = ginkgo.Describe("QuickStart with a ClusterClass", func() {
	quickStart(topology, 1, checkMetadata(true))
})

var _ = ginkgo.Describe("QuickStart with a ClusterClass without workers", func() {
	quickStart(serversOnly, 0, checkStable)
})

func quickStart(flavor string, workers int64, check func(proxy framework.ClusterProxy, namespace, name string)) {
	e2e.QuickStartSpec(context.Background(), func() e2e.QuickStartSpecInput {
		return e2e.QuickStartSpecInput{
			E2EConfig: config, ClusterctlConfigPath: clusterctlConfig, BootstrapClusterProxy: proxy, ArtifactFolder: artifacts,
			InfrastructureProvider: ptr.To(infrastructure), Flavor: ptr.To(flavor), WorkerMachineCount: ptr.To(workers),
			ControlPlaneWaiters: waiters, PostMachinesProvisioned: check,
		}
	})
}

var _ = ginkgo.Describe("ClusterDeletion", func() {
	e2e.ClusterDeletionSpec(context.Background(), func() e2e.ClusterDeletionSpecInput {
		return e2e.ClusterDeletionSpecInput{
			E2EConfig: config, ClusterctlConfigPath: clusterctlConfig, BootstrapClusterProxy: proxy, ArtifactFolder: artifacts,
			InfrastructureProvider: ptr.To(infrastructure), Flavor: ptr.To(topology), ControlPlaneMachineCount: ptr.To[int64](3),
			ControlPlaneWaiters: waiters,
			// Workers, then servers, then the infrastructure.
			ClusterDeletionPhases: []e2e.ClusterDeletionPhase{
				phase("Machine", "MachineSet", "MachineDeployment"),
				phase("Machine", "KThreesControlPlane"),
				phase("SandboxCluster"),
			},
		}
	})
})

// phase is the deletion of all objects of the last kinds, and of those of the first that they own, which hold it up.
func phase(held string, owners ...string) e2e.ClusterDeletionPhase {
	isOwner := func(kind string) bool { return slices.Contains(owners, kind) }
	return e2e.ClusterDeletionPhase{
		ObjectFilter: func(object corev1.ObjectReference, refs []metav1.OwnerReference) bool {
			owned := len(owners) == 0 || slices.ContainsFunc(refs, func(ref metav1.OwnerReference) bool { return isOwner(ref.Kind) })
			return object.Kind == held && owned || isOwner(object.Kind)
		},
		BlockingObjectFilter: func(object corev1.ObjectReference, _ []metav1.OwnerReference) bool { return object.Kind == held },
	}
}

var _ = ginkgo.Describe("MachineDeployment scale", func() {
	e2e.MachineDeploymentScaleSpec(context.Background(), func() e2e.MachineDeploymentScaleSpecInput {
		return e2e.MachineDeploymentScaleSpecInput{
			E2EConfig: config, ClusterctlConfigPath: clusterctlConfig, BootstrapClusterProxy: proxy, ArtifactFolder: artifacts,
			InfrastructureProvider: ptr.To(infrastructure), Flavor: plain, ControlPlaneWaiters: waiters,
		}
	})
})

var _ = ginkgo.Describe("MachineDeployment remediation", func() {
	e2e.MachineDeploymentRemediationSpec(context.Background(), func() e2e.MachineDeploymentRemediationSpecInput {
		return e2e.MachineDeploymentRemediationSpecInput{
			E2EConfig: config, ClusterctlConfigPath: clusterctlConfig, BootstrapClusterProxy: proxy, ArtifactFolder: artifacts,
			InfrastructureProvider: ptr.To(infrastructure), Flavor: ptr.To(remediation), ControlPlaneWaiters: waiters,
		}
	})
})

var _ = ginkgo.Describe("ClusterClass changes", func() {
	e2e.ClusterClassChangesSpec(context.Background(), func() e2e.ClusterClassChangesSpecInput {
		return e2e.ClusterClassChangesSpecInput{
			E2EConfig: config, ClusterctlConfigPath: clusterctlConfig, BootstrapClusterProxy: proxy, ArtifactFolder: artifacts,
			InfrastructureProvider: ptr.To(infrastructure), Flavor: topology, ControlPlaneWaiters: waiters,
			ModifyControlPlaneFields: map[string]any{
				"spec.kthreesConfigSpec.preK3sCommands": []any{"true"},
			},
			ModifyMachineDeploymentBootstrapConfigTemplateFields: map[string]any{
				"spec.template.spec.preK3sCommands": []any{"true"},
			},
			ModifyMachineDeploymentInfrastructureMachineTemplateFields: map[string]any{
				"spec.template.spec.preinstalledVersion": version,
			},
		}
	})
})

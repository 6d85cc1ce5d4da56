//go:build e2e

package peer

import (
	"context"

	"github.com/onsi/gomega"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/test/framework/clusterctl"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
)

// waiters wait for a KThreesControlPlane where the framework would for a KubeadmControlPlane.
var waiters = clusterctl.ControlPlaneWaiters{
	WaitForControlPlaneInitialized: func(ctx context.Context, input clusterctl.ApplyCustomClusterTemplateAndWaitInput, _ *clusterctl.ApplyCustomClusterTemplateAndWaitResult) {
		gomega.Eventually(func(g gomega.Gomega) {
			g.Expect(ptr.Deref(getCluster(ctx, g, input).Status.Initialization.ControlPlaneInitialized, false)).To(gomega.BeTrue())
		}, input.WaitForControlPlaneIntervals...).Should(gomega.Succeed(), "the control plane isn't initialized")
	},
	WaitForControlPlaneMachinesReady: func(ctx context.Context, input clusterctl.ApplyCustomClusterTemplateAndWaitInput, _ *clusterctl.ApplyCustomClusterTemplateAndWaitResult) {
		gomega.Eventually(func(g gomega.Gomega) {
			controlPlane := &controlplanev1.KThreesControlPlane{}
			key := client.ObjectKey{Namespace: input.Namespace, Name: getCluster(ctx, g, input).Spec.ControlPlaneRef.Name}
			g.Expect(management.Client.Get(ctx, key, controlPlane)).To(gomega.Succeed())
			g.Expect(controlPlane.Status.ReadyReplicas).To(gomega.HaveValue(gomega.Equal(*controlPlane.Spec.Replicas)))
		}, input.WaitForControlPlaneIntervals...).Should(gomega.Succeed(), "the servers aren't ready")
	},
}

func getCluster(ctx context.Context, g gomega.Gomega, input clusterctl.ApplyCustomClusterTemplateAndWaitInput) *clusterv1.Cluster {
	cluster := &clusterv1.Cluster{}
	g.Expect(management.Client.Get(ctx, client.ObjectKey{Namespace: input.Namespace, Name: input.ClusterName}, cluster)).To(gomega.Succeed())
	return cluster
}

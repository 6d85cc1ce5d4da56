package custody

import (
	"context"
	"fmt"

	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
)

// MayGenerate returns nil when nothing speaks against making new key material: the API server, asked without a
// cache, knows of no pause, no deletion and no sign that the cluster was ever founded. Whether the Secret in question
// exists is the caller's question.
func (k *Keeper) MayGenerate(ctx context.Context) error {
	why, err := k.whyNotGenerate(ctx)
	if err != nil {
		return err
	}
	if why != "" {
		return fmt.Errorf("no key material is made for cluster %s: %s", k.Cluster.Name, why)
	}
	return nil
}

func (k *Keeper) whyNotGenerate(ctx context.Context) (string, error) {
	controlPlane := &controlplanev1.KThreesControlPlane{}
	if err := k.APIReader.Get(ctx, client.ObjectKeyFromObject(k.ControlPlane), controlPlane); err != nil {
		return "", fmt.Errorf("reading KThreesControlPlane %s from the API server: %w", k.ControlPlane.Name, err)
	}
	cluster := &clusterv1.Cluster{}
	if err := k.APIReader.Get(ctx, client.ObjectKeyFromObject(k.Cluster), cluster); err != nil {
		return "", fmt.Errorf("reading Cluster %s from the API server: %w", k.Cluster.Name, err)
	}
	live := Keeper{Cluster: cluster, ControlPlane: controlPlane}
	if err := live.Entitled(); err != nil {
		return "", err
	}
	switch {
	case controlPlane.UID != k.ControlPlane.UID:
		return "the KThreesControlPlane was created anew", nil
	case !controlPlane.DeletionTimestamp.IsZero() || !cluster.DeletionTimestamp.IsZero():
		return "it is being deleted", nil
	case annotations.IsPaused(cluster, controlPlane):
		return "it is paused", nil
	case wasFounded(cluster, controlPlane):
		return "it was founded before", nil
	}
	return k.usedBy(ctx)
}

// wasFounded reads the evidence of a foundation, unless a human said that it no longer counts.
func wasFounded(cluster *clusterv1.Cluster, controlPlane *controlplanev1.KThreesControlPlane) bool {
	if controlPlane.Annotations[controlplanev1.AllowInitAnnotation] == "true" {
		return false
	}
	_, evidence := controlPlane.Annotations[controlplanev1.InitializedAnnotation]
	return evidence ||
		ptr.Deref(controlPlane.Status.Initialization.ControlPlaneInitialized, false) ||
		ptr.Deref(cluster.Status.Initialization.ControlPlaneInitialized, false) ||
		conditions.IsTrue(cluster, clusterv1.ClusterControlPlaneInitializedCondition)
}

// usedBy looks for a Machine that was given bootstrap data.
func (k *Keeper) usedBy(ctx context.Context) (string, error) {
	machines := &clusterv1.MachineList{}
	err := k.APIReader.List(ctx, machines, client.InNamespace(k.Cluster.Namespace),
		client.MatchingLabels{clusterv1.ClusterNameLabel: k.Cluster.Name})
	if err != nil {
		return "", fmt.Errorf("listing the Machines of cluster %s from the API server: %w", k.Cluster.Name, err)
	}
	for _, machine := range machines.Items {
		if machine.Spec.Bootstrap.DataSecretName != nil || machine.Spec.ProviderID != "" || machine.Status.NodeRef.IsDefined() {
			return fmt.Sprintf("Machine %s has bootstrap data already", machine.Name), nil
		}
	}
	return "", nil
}

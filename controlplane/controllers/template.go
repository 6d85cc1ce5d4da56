package controllers

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ownInfrastructureTemplate makes the Cluster an owner of the infrastructure template, so that clusterctl move
// takes it along. A template of a ClusterClass is shared and left alone; a missing one is told when it is needed.
func (r *Reconciler) ownInfrastructureTemplate(ctx context.Context, s *scope) error {
	if s.template == nil || util.HasOwner(s.template.GetOwnerReferences(), clusterv1.GroupVersion.String(), []string{"ClusterClass"}) {
		return nil
	}
	owner := metav1.OwnerReference{
		APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: s.cluster.Name, UID: s.cluster.UID,
	}
	if util.HasExactOwnerRef(s.template.GetOwnerReferences(), owner) {
		return nil
	}
	after := s.template.DeepCopy()
	after.SetOwnerReferences(util.EnsureOwnerRef(after.GetOwnerReferences(), owner))
	if err := r.Client.Patch(ctx, after, client.MergeFromWithOptions(s.template, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("making Cluster %s an owner of %s %s: %w", s.cluster.Name, after.GetKind(), after.GetName(), err)
	}
	return nil
}

package controllers

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/external"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ownInfrastructureTemplate makes the Cluster an owner of the infrastructure template, so that clusterctl move
// takes it along. A template of a ClusterClass is shared and left alone; a missing one is told when it is needed.
func (r *Reconciler) ownInfrastructureTemplate(ctx context.Context, s *scope) error {
	ref := s.controlPlane.Spec.MachineTemplate.Spec.InfrastructureRef
	template, err := external.GetObjectFromContractVersionedRef(ctx, r.Client, ref, s.controlPlane.Namespace)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading %s %s: %w", ref.Kind, ref.Name, err)
	}
	if util.HasOwner(template.GetOwnerReferences(), clusterv1.GroupVersion.String(), []string{"ClusterClass"}) {
		return nil
	}
	owner := metav1.OwnerReference{
		APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: s.cluster.Name, UID: s.cluster.UID,
	}
	if util.HasExactOwnerRef(template.GetOwnerReferences(), owner) {
		return nil
	}
	before := template.DeepCopy()
	template.SetOwnerReferences(util.EnsureOwnerRef(template.GetOwnerReferences(), owner))
	if err := r.Client.Patch(ctx, template, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("making Cluster %s an owner of %s %s: %w", s.cluster.Name, ref.Kind, ref.Name, err)
	}
	return nil
}

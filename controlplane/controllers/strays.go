package controllers

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/external"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
)

// deleteStrays deletes the KThreesConfigs and infrastructure machines that were made for a Machine which was never
// made, since the operator was stopped in between. Only what refers to this control plane by UID is looked at: a
// restored object has no owner references and may be waiting for its Machine.
func (r *Reconciler) deleteStrays(ctx context.Context, s *scope) error {
	configs := &unstructured.UnstructuredList{}
	configs.SetGroupVersionKind(bootstrapv1.GroupVersion.WithKind("KThreesConfigList"))
	lists := []*unstructured.UnstructuredList{configs}

	ref := s.controlPlane.Spec.MachineTemplate.Spec.InfrastructureRef
	template, err := external.GetObjectFromContractVersionedRef(ctx, r.Client, ref, s.controlPlane.Namespace)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading %s %s: %w", ref.Kind, ref.Name, err)
	}
	if err == nil {
		infra := &unstructured.UnstructuredList{}
		gvk := template.GroupVersionKind()
		gvk.Kind = strings.TrimSuffix(gvk.Kind, clusterv1.TemplateSuffix) + "List"
		infra.SetGroupVersionKind(gvk)
		lists = append(lists, infra)
	}
	for _, list := range lists {
		if err := r.deleteStraysOf(ctx, s, list); err != nil {
			return err
		}
	}
	return nil
}

func (r *Reconciler) deleteStraysOf(ctx context.Context, s *scope, list *unstructured.UnstructuredList) error {
	if err := r.Client.List(ctx, list, client.InNamespace(s.controlPlane.Namespace), client.MatchingLabels(ownLabels(s))); err != nil {
		return fmt.Errorf("listing %s: %w", list.GetKind(), err)
	}
	for i := range list.Items {
		object := &list.Items[i]
		if _, used := s.machines[object.GetName()]; used || !isStray(object, s.controlPlane) {
			continue
		}
		// The cache may lag behind a Machine that was just made.
		err := r.APIReader.Get(ctx, client.ObjectKeyFromObject(object), &clusterv1.Machine{})
		if err == nil {
			continue
		}
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("reading Machine %s: %w", object.GetName(), err)
		}
		if err := r.Client.Delete(ctx, object, client.Preconditions{UID: new(object.GetUID())}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting %s %s, which has no Machine: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return nil
}

// isStray says whether this very control plane made the object and no Machine has taken it.
func isStray(object client.Object, controlPlane *controlplanev1.KThreesControlPlane) bool {
	return object.GetDeletionTimestamp().IsZero() &&
		metav1.GetControllerOf(object) == nil &&
		len(object.GetOwnerReferences()) == 1 &&
		object.GetOwnerReferences()[0].UID == controlPlane.UID
}

package controllers

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
)

// deleteStrays deletes the KThreesConfigs and infrastructure machines that were made for a Machine which was never
// made, since the operator was stopped in between. Only what refers to this control plane by UID is looked at: a
// restored object has no owner references and may be waiting for its Machine.
func (r *Reconciler) deleteStrays(ctx context.Context, s *scope) error {
	inNamespace, ours := client.InNamespace(s.controlPlane.Namespace), client.MatchingLabels(ownLabels(s))
	configs := &bootstrapv1.KThreesConfigList{}
	if err := r.Client.List(ctx, configs, inNamespace, ours); err != nil {
		return fmt.Errorf("listing KThreesConfigs: %w", err)
	}
	var objects []client.Object
	for i := range configs.Items {
		objects = append(objects, &configs.Items[i])
	}
	if kind, ok := s.infraMachineKind(); ok {
		infra := &unstructured.UnstructuredList{}
		infra.SetGroupVersionKind(kind)
		if err := r.Client.List(ctx, infra, inNamespace, ours); err != nil {
			return fmt.Errorf("listing %s: %w", kind.Kind, err)
		}
		for i := range infra.Items {
			objects = append(objects, &infra.Items[i])
		}
	}
	for _, object := range objects {
		if err := r.deleteStray(ctx, s, object); err != nil {
			return err
		}
	}
	return nil
}

// infraMachineKind is the kind of a list of infrastructure machines; unknown while the template is missing.
func (s *scope) infraMachineKind() (schema.GroupVersionKind, bool) {
	if s.template == nil {
		return schema.GroupVersionKind{}, false
	}
	kind := s.template.GroupVersionKind()
	kind.Kind = strings.TrimSuffix(kind.Kind, clusterv1.TemplateSuffix) + "List"
	return kind, true
}

func (r *Reconciler) deleteStray(ctx context.Context, s *scope, object client.Object) error {
	if _, used := s.machines[object.GetName()]; used || !isStray(object, s.controlPlane) {
		return nil
	}
	// The cache may lag behind a Machine that was just made.
	err := r.APIReader.Get(ctx, client.ObjectKeyFromObject(object), &clusterv1.Machine{})
	if err == nil {
		return nil
	}
	if !apierrors.IsNotFound(err) {
		return fmt.Errorf("reading Machine %s: %w", object.GetName(), err)
	}
	if err := r.Client.Delete(ctx, object, client.Preconditions{UID: new(object.GetUID())}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting %T %s, which has no Machine: %w", object, object.GetName(), err)
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

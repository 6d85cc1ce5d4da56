package controllers

import (
	"bytes"
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
)

// propagate keeps on the Machines, and on what they refer to, what changes without a rollout: metadata, deletion
// timeouts, readiness gates, taints, and the owner reference that a backup drops.
func (r *Reconciler) propagate(ctx context.Context, s *scope) error {
	for _, name := range s.machines.Names() {
		if err := r.propagateTo(ctx, s, s.machines[name]); err != nil {
			return err
		}
	}
	return nil
}

func (r *Reconciler) propagateTo(ctx context.Context, s *scope, machine *clusterv1.Machine) error {
	desired := desiredMachine(s, machine, identityOf(machine))
	if machineNeedsApply(machine, desired) {
		err := r.applyMachine(ctx, desired)
		if apierrors.IsConflict(err) && !machine.DeletionTimestamp.IsZero() {
			// It is gone meanwhile, as the UID tells the API server.
			return nil
		}
		if err != nil {
			return err
		}
	}
	if !machine.DeletionTimestamp.IsZero() {
		return nil
	}
	if config := s.configs[machine.Name]; config != nil {
		config.SetGroupVersionKind(bootstrapv1.GroupVersion.WithKind("KThreesConfig"))
		if err := r.applyMetadata(ctx, s, config); err != nil {
			return err
		}
	}
	if infra := s.infraMachines[machine.Name]; infra != nil {
		return r.applyMetadata(ctx, s, infra)
	}
	return nil
}

// applyMetadata keeps the labels and annotations of the Machine template on a KThreesConfig or infrastructure
// machine.
func (r *Reconciler) applyMetadata(ctx context.Context, s *scope, current client.Object) error {
	labels, annotations := machineLabels(s), copyMap(s.controlPlane.Spec.MachineTemplate.ObjectMeta.Annotations)
	if metadataApplied(current, metadataManager, labels, annotations) {
		return nil
	}
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(current.GetObjectKind().GroupVersionKind())
	u.SetNamespace(current.GetNamespace())
	u.SetName(current.GetName())
	u.SetUID(current.GetUID())
	u.SetLabels(labels)
	u.SetAnnotations(annotations)
	if err := r.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(metadataManager), client.ForceOwnership); err != nil {
		return fmt.Errorf("applying metadata to %s %s: %w", u.GetKind(), u.GetName(), err)
	}
	return nil
}

// machineNeedsApply says whether a Machine differs from the desired one in what changes in place.
func machineNeedsApply(current, desired *clusterv1.Machine) bool {
	owned := false
	for _, ref := range current.OwnerReferences {
		owned = owned || equality.Semantic.DeepEqual(ref, desired.OwnerReferences[0])
	}
	return !owned ||
		!metadataApplied(current, fieldManager, desired.Labels, desired.Annotations) ||
		!equality.Semantic.DeepEqual(current.Spec.ReadinessGates, desired.Spec.ReadinessGates) ||
		!equality.Semantic.DeepEqual(current.Spec.Deletion, desired.Spec.Deletion) ||
		!equality.Semantic.DeepEqual(current.Spec.Taints, desired.Spec.Taints)
}

// metadataApplied says whether an object has the labels and annotations, and no others that the manager applied.
// The object itself tells which those are, so that nothing has to be remembered.
func metadataApplied(current client.Object, manager string, labels, annotations map[string]string) bool {
	return contains(current.GetLabels(), labels) && contains(current.GetAnnotations(), annotations) &&
		onlyApplied(current, manager, "labels", labels) && onlyApplied(current, manager, "annotations", annotations)
}

func contains(have, want map[string]string) bool {
	for k, v := range want {
		if value, ok := have[k]; !ok || value != v {
			return false
		}
	}
	return true
}

// onlyApplied says whether every key of a metadata map that the manager applied is still wanted.
func onlyApplied(current client.Object, manager, field string, want map[string]string) bool {
	for _, entry := range current.GetManagedFields() {
		if entry.Manager != manager || entry.Operation != metav1.ManagedFieldsOperationApply || entry.FieldsV1 == nil {
			continue
		}
		set := &fieldpath.Set{}
		if err := set.FromJSON(bytes.NewReader(entry.FieldsV1.GetRawBytes())); err != nil {
			return false
		}
		stale := false
		prefix := fieldpath.MakePathOrDie("metadata", field)
		set.Iterate(func(p fieldpath.Path) {
			if len(p) == len(prefix)+1 && p[:len(prefix)].Equals(prefix) && p[len(prefix)].FieldName != nil {
				if _, ok := want[*p[len(prefix)].FieldName]; !ok {
					stale = true
				}
			}
		})
		if stale {
			return false
		}
	}
	return true
}

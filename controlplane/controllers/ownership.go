package controllers

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/collections"
	"sigs.k8s.io/cluster-api/util/labels/format"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
	"github.com/capk3s/capk3s/pkg/custody"
	"github.com/capk3s/capk3s/pkg/k3s"
)

// hasNoOtherController says whether a control plane Machine of the cluster may be this control plane's. One without
// a controller was restored from a backup or made by a human.
func hasNoOtherController(controlPlane *controlplanev1.KThreesControlPlane) collections.Func {
	return func(machine *clusterv1.Machine) bool {
		controller := metav1.GetControllerOf(machine)
		return controller == nil || custody.RefersTo(*controller, controlPlane.Name)
	}
}

// carriesName says whether a Machine has the label with the control plane's name, which survives a backup.
func carriesName(controlPlane *controlplanev1.KThreesControlPlane) collections.Func {
	return func(machine *clusterv1.Machine) bool {
		return format.MustEqualValue(controlPlane.Name, machine.Labels[clusterv1.MachineControlPlaneNameLabel])
	}
}

// mixedOwnership says which Machines of the cluster another controller has; empty when there are none.
func mixedOwnership(s *scope) string {
	if len(s.foreign) == 0 {
		return ""
	}
	machine := s.foreign.Oldest()
	controller := metav1.GetControllerOf(machine)
	return fmt.Sprintf("Machine %s is controlled by %s %s; nothing is done while another controller has control plane Machines of Cluster %s",
		machine.Name, controller.Kind, controller.Name, s.cluster.Name)
}

// unadoptable says why a Machine without a controller, which never was this control plane's, can't become one of its
// servers; empty when all can.
func unadoptable(s *scope) string {
	for _, name := range s.machines.Names() {
		machine := s.machines[name]
		if metav1.GetControllerOf(machine) != nil || carriesName(s.controlPlane)(machine) {
			continue
		}
		if message := unlikeOurs(machine, s.controlPlane.Spec.Version); message != "" {
			return fmt.Sprintf("Machine %s has no controller and can't be adopted: %s", name, message)
		}
	}
	return ""
}

// unlikeOurs says why a Machine can't be one of a control plane's servers.
func unlikeOurs(machine *clusterv1.Machine, version string) string {
	if ref := machine.Spec.Bootstrap.ConfigRef; ref.IsDefined() && (ref.APIGroup != bootstrapv1.GroupVersion.Group || ref.Kind != "KThreesConfig") {
		return fmt.Sprintf("its bootstrap configuration is a %s, not a KThreesConfig", ref.Kind)
	}
	has, err := k3s.ParseVersion(machine.Spec.Version)
	if err != nil {
		return "its spec.version: " + err.Error()
	}
	wants, err := k3s.ParseVersion(version)
	if err != nil {
		return err.Error()
	}
	if has.Kubernetes.Major != wants.Kubernetes.Major || max(has.Kubernetes.Minor, wants.Kubernetes.Minor)-min(has.Kubernetes.Minor, wants.Kubernetes.Minor) > 1 {
		return fmt.Sprintf("its version %s is more than one minor away from the control plane's %s", machine.Spec.Version, version)
	}
	return ""
}

// adopt makes room for the control plane's reference on the Machines that have no controller, or an older life of
// the control plane; propagate then writes it.
func (r *Reconciler) adopt(ctx context.Context, s *scope) error {
	unowned := s.machines.Filter(func(m *clusterv1.Machine) bool { return !metav1.IsControlledBy(m, s.controlPlane) })
	if len(unowned) == 0 {
		return nil
	}
	if err := r.confirmMayAdopt(ctx, s); err != nil {
		return err
	}
	for _, name := range unowned.Names() {
		if err := r.dropOlderLives(ctx, s, unowned[name]); err != nil {
			return err
		}
		if !carriesName(s.controlPlane)(unowned[name]) {
			r.event(s, corev1.EventTypeNormal, "Adopted", "Adopt", "Machine %s had no controller and is adopted", name)
		}
	}
	return nil
}

// confirmMayAdopt reads without a cache that this control plane still is and isn't being deleted: the garbage
// collector would take along what it adopts.
func (r *Reconciler) confirmMayAdopt(ctx context.Context, s *scope) error {
	current := &controlplanev1.KThreesControlPlane{}
	if err := r.APIReader.Get(ctx, client.ObjectKeyFromObject(s.controlPlane), current); err != nil {
		return fmt.Errorf("reading KThreesControlPlane %s before it adopts Machines: %w", s.controlPlane.Name, err)
	}
	if current.UID != s.controlPlane.UID || !current.DeletionTimestamp.IsZero() {
		return fmt.Errorf("KThreesControlPlane %s adopts no Machines: it was deleted or replaced meanwhile", s.controlPlane.Name)
	}
	return nil
}

// dropOlderLives takes the references to older control planes of this name off a Machine: there can be only one
// controller.
func (r *Reconciler) dropOlderLives(ctx context.Context, s *scope, machine *clusterv1.Machine) error {
	before := machine.DeepCopy()
	machine.OwnerReferences = slices.DeleteFunc(machine.OwnerReferences, func(ref metav1.OwnerReference) bool {
		return ref.UID != s.controlPlane.UID && custody.RefersTo(ref, s.controlPlane.Name)
	})
	if len(machine.OwnerReferences) == len(before.OwnerReferences) {
		return nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Patch(ctx, machine, patch); err != nil {
		return fmt.Errorf("taking the former control plane off Machine %s: %w", machine.Name, err)
	}
	return nil
}

package controllers

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/collections"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
)

// maxNamesInMessage bounds the names in a condition's message.
const maxNamesInMessage = 5

// reconcileDelete deletes the servers after the workers, then lets the control plane go. It asks the workload
// cluster for nothing, so that a dead one is deleted like any other.
func (r *Reconciler) reconcileDelete(ctx context.Context, s *scope) (ctrl.Result, error) {
	workers, err := r.workers(ctx, s)
	if err != nil {
		return ctrl.Result{}, err
	}
	if len(workers) > 0 {
		// The end of the last worker is watched.
		reportDeleting(s, controlplanev1.WaitingForWorkersDeletionReason, "waiting for workers to be deleted: "+someNames(workers))
		return ctrl.Result{}, r.propagate(ctx, s)
	}
	if len(s.machines) > 0 {
		reportDeleting(s, controlplanev1.WaitingForMachinesDeletionReason, "waiting for servers to be deleted: "+someNames(s.machines.Names()))
		return ctrl.Result{}, r.deleteMachines(ctx, s)
	}
	return ctrl.Result{}, r.finishDeletion(ctx, s)
}

// workers names the Machines and MachinePools of the cluster that aren't servers of this control plane.
func (r *Reconciler) workers(ctx context.Context, s *scope) ([]string, error) {
	machines, err := collections.GetFilteredMachinesForCluster(ctx, r.Client, s.cluster)
	if err != nil {
		return nil, fmt.Errorf("listing the Machines of Cluster %s: %w", s.cluster.Name, err)
	}
	var names []string
	for _, name := range machines.Names() {
		if _, server := s.machines[name]; !server {
			names = append(names, name)
		}
	}
	pools := &clusterv1.MachinePoolList{}
	err = r.Client.List(ctx, pools, client.InNamespace(s.cluster.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: s.cluster.Name})
	if err != nil {
		return nil, fmt.Errorf("listing the MachinePools of Cluster %s: %w", s.cluster.Name, err)
	}
	for i := range pools.Items {
		names = append(names, pools.Items[i].Name)
	}
	return names, nil
}

// deleteMachines deletes all servers at once and holds none of them back.
func (r *Reconciler) deleteMachines(ctx context.Context, s *scope) error {
	var errs []error
	for _, name := range s.machines.Names() {
		machine := s.machines[name]
		errs = append(errs, r.releaseMachine(ctx, s, machine))
		if !machine.DeletionTimestamp.IsZero() {
			continue
		}
		if err := r.Client.Delete(ctx, machine); client.IgnoreNotFound(err) != nil {
			r.event(s, corev1.EventTypeWarning, "FailedDelete", "Delete", "Machine %s could not be deleted: %v", name, err)
			errs = append(errs, fmt.Errorf("deleting Machine %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// finishDeletion takes the finalizer away once there are no Machines, which is believed only from an uncached read.
func (r *Reconciler) finishDeletion(ctx context.Context, s *scope) error {
	all, err := listMachines(ctx, r.APIReader, s.cluster)
	if err != nil {
		return err
	}
	if machines, _ := splitMachines(all, s.controlPlane); len(machines) > 0 {
		reportDeleting(s, controlplanev1.WaitingForMachinesDeletionReason, "waiting for servers to be deleted: "+someNames(machines.Names()))
		return nil
	}
	reportDeleting(s, controlplanev1.DeletionCompletedReason, "")
	r.supervisors.forget(types.NamespacedName{Namespace: s.cluster.Namespace, Name: s.cluster.Name})
	controllerutil.RemoveFinalizer(s.controlPlane, controlplanev1.Finalizer)
	return nil
}

func reportDeleting(s *scope, reason, message string) {
	reportReplicas(s)
	conditions.Set(s.controlPlane, metav1.Condition{
		Type: controlplanev1.DeletingCondition, Status: metav1.ConditionTrue, Reason: reason, Message: message,
	})
	conditions.Set(s.controlPlane, metav1.Condition{
		Type: controlplanev1.AvailableCondition, Status: metav1.ConditionFalse, Reason: clusterv1.NotAvailableReason,
		Message: "the control plane is being deleted",
	})
}

func someNames(names []string) string {
	if len(names) <= maxNamesInMessage {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNamesInMessage], ", "), len(names)-maxNamesInMessage)
}

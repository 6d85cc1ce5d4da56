package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	kerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/collections"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/patch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
	"github.com/capk3s/capk3s/pkg/k3s"
)

// report sets the status of the control plane, which the caller writes, and writes the conditions of the Machines.
func (r *Reconciler) report(ctx context.Context, s *scope, p *plan) error {
	err := r.reportMachines(ctx, s, p)
	reportReplicas(s)
	reportLastRemediation(s)
	reportVersions(s)
	r.reportInitialized(s)
	r.tellExpiry(s)
	r.tellHolds(s, p)
	for _, condition := range computeConditions(s, p) {
		conditions.Set(s.controlPlane, condition)
	}
	return err
}

// reportHandsOff says why nothing is done for the Cluster, with one event.
func (r *Reconciler) reportHandsOff(s *scope, reason, message string) {
	if conditions.GetMessage(s.controlPlane, controlplanev1.AvailableCondition) != message {
		r.event(s, corev1.EventTypeWarning, reason, "Wait", "%s", message)
	}
	for _, t := range []string{controlplanev1.TokenAvailableCondition, controlplanev1.CertificatesAvailableCondition} {
		conditions.Set(s.controlPlane, metav1.Condition{Type: t, Status: metav1.ConditionUnknown, Reason: reason, Message: message})
	}
	conditions.Set(s.controlPlane, metav1.Condition{
		Type: controlplanev1.AvailableCondition, Status: metav1.ConditionFalse, Reason: reason, Message: message,
	})
}

// reportReplicas counts the Machines by their conditions.
func reportReplicas(s *scope) {
	count := func(conditionType string) *int32 {
		matching := s.machines.Filter(func(m *clusterv1.Machine) bool { return conditions.IsTrue(m, conditionType) })
		return ptr.To(int32(len(matching))) //nolint:gosec // a handful of Machines
	}
	status := &s.controlPlane.Status
	status.Selector = labels.SelectorFromSet(ownLabels(s)).String()
	status.Replicas = ptr.To(int32(len(s.machines))) //nolint:gosec // a handful of Machines
	status.ReadyReplicas = count(clusterv1.MachineReadyCondition)
	status.AvailableReplicas = count(clusterv1.MachineAvailableCondition)
	status.UpToDateReplicas = count(clusterv1.MachineUpToDateCondition)
}

// reportVersions lists the versions that the servers run, lowest first. A server that hasn't joined counts with
// the version it was asked for.
func reportVersions(s *scope) {
	counts := map[string]int32{}
	for _, machine := range s.machines {
		counts[runningVersion(machine)]++
	}
	delete(counts, "")
	versions := make([]clusterv1.StatusVersion, 0, len(counts))
	for version, replicas := range counts {
		versions = append(versions, clusterv1.StatusVersion{Version: version, Replicas: replicas})
	}
	slices.SortFunc(versions, func(a, b clusterv1.StatusVersion) int { return compareVersions(a.Version, b.Version) })

	s.controlPlane.Status.Versions, s.controlPlane.Status.Version = versions, ""
	if len(versions) > 0 {
		s.controlPlane.Status.Version = versions[0].Version
	}
}

// runningVersion is the version of a Machine's kubelet, or the one it was asked for.
func runningVersion(machine *clusterv1.Machine) string {
	if info := machine.Status.NodeInfo; info != nil && info.KubeletVersion != "" {
		return info.KubeletVersion
	}
	return machine.Spec.Version
}

// compareVersions orders versions; those that can't be parsed come first, in the order of their text.
func compareVersions(a, b string) int {
	if order, err := k3s.Compare(a, b); err == nil {
		return order
	}
	_, errA := k3s.ParseVersion(a)
	_, errB := k3s.ParseVersion(b)
	switch {
	case errA != nil && errB == nil:
		return -1
	case errA == nil && errB != nil:
		return 1
	case a < b:
		return -1
	default:
		return 1
	}
}

// reportInitialized records the first answer of the API; it is never taken back.
func (r *Reconciler) reportInitialized(s *scope) {
	if ptr.Deref(s.controlPlane.Status.Initialization.ControlPlaneInitialized, false) || !s.workload.ready {
		return
	}
	s.controlPlane.Status.Initialization.ControlPlaneInitialized = ptr.To(true)
	r.event(s, "Normal", "Initialized", "Create", "the control plane accepts requests")
}

// reportMachines sets the conditions of the Machines that the control plane answers for.
func (r *Reconciler) reportMachines(ctx context.Context, s *scope, p *plan) error {
	var errs []error
	for _, name := range s.machines.Names() {
		machine := s.machines[name]
		helper, err := patch.NewHelper(machine, r.Client)
		if err != nil {
			errs = append(errs, fmt.Errorf("preparing the patch of Machine %s: %w", name, err))
			continue
		}
		for _, condition := range machineConditions(s, machine) {
			conditions.Set(machine, condition)
		}
		reportRemediated(p, machine)
		err = helper.Patch(ctx, machine, patch.WithOwnedConditions{Conditions: []string{
			controlplanev1.MachineUpToDateCondition, controlplanev1.MachineEtcdMemberHealthyCondition,
			clusterv1.MachineOwnerRemediatedCondition,
		}})
		// A Machine that is gone meanwhile needs none.
		if err = ignoreAllNotFound(err); err != nil {
			errs = append(errs, fmt.Errorf("writing the conditions of Machine %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// ignoreAllNotFound looks into the aggregate that the patch helper wraps.
func ignoreAllNotFound(err error) error {
	var all kerrors.Aggregate
	if errors.As(err, &all) {
		return kerrors.FilterOut(all, apierrors.IsNotFound)
	}
	return client.IgnoreNotFound(err)
}

// tellHolds makes an event of what holds back a change, when the conditions don't say it yet.
func (r *Reconciler) tellHolds(s *scope, p *plan) {
	if isStarting(s) {
		return
	}
	var said []string
	for _, t := range []string{controlplanev1.RollingOutCondition, controlplanev1.ScalingUpCondition, controlplanev1.ScalingDownCondition} {
		said = append(said, strings.Split(conditions.GetMessage(s.controlPlane, t), "\n")...)
	}
	for _, h := range p.waiting {
		if h.change != removeMember && !slices.Contains(said, bullets([]string{h.message})) {
			r.event(s, corev1.EventTypeWarning, "ControlPlaneUnhealthy", "Wait", "%s waits: %s", h.change, h.message)
		}
	}
}

// isStarting says whether a server is on its way up, which is no reason for a warning.
func isStarting(s *scope) bool {
	return len(s.active().Filter(collections.Not(collections.HasNode()))) > 0 || len(s.machines) == 0
}

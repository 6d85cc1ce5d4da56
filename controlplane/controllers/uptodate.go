package controllers

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/collections"
)

// outdated are the Machines, not being deleted, that no longer match the control plane's spec.
func (s *scope) outdated() collections.Machines {
	return s.active().Filter(func(m *clusterv1.Machine) bool {
		return len(s.outdatedReasons(m)) > 0
	})
}

// outdatedReasons says in what a Machine differs from the control plane's spec. What changes in place is no reason.
func (s *scope) outdatedReasons(machine *clusterv1.Machine) []string {
	var reasons []string
	if want := s.controlPlane.Spec.Version; machine.Spec.Version != want {
		reasons = append(reasons, fmt.Sprintf("Version %s, %s required", machine.Spec.Version, want))
	}
	if !s.infraMatches(machine) {
		reasons = append(reasons, s.controlPlane.Spec.MachineTemplate.Spec.InfrastructureRef.Kind+" is not up-to-date")
	}
	if config := s.configs[machine.Name]; config != nil && !sameConfig(config.Spec, s.controlPlane.Spec.KThreesConfigSpec, s.schemas) {
		reasons = append(reasons, "KThreesConfig is not up-to-date")
	}
	return append(reasons, s.dueReasons(machine)...)
}

// dueReasons says why a Machine that matches the spec is to be replaced all the same.
func (s *scope) dueReasons(machine *clusterv1.Machine) []string {
	var reasons []string
	now := metav1.NewTime(s.now)
	if after := s.controlPlane.Spec.Rollout.After; collections.ShouldRolloutAfter(&now, after)(machine) {
		reasons = append(reasons, "spec.rollout.after "+after.UTC().Format(time.RFC3339)+" has passed since it was created")
	}
	if renew := s.renewalTime(machine); !renew.IsZero() && s.now.After(renew) {
		reasons = append(reasons, "its certificates expire at "+machine.Status.CertificatesExpiryDate.UTC().Format(time.RFC3339))
	}
	return reasons
}

// renewalTime is when a Machine is to be replaced because its certificates expire, which K3s renews only at a start;
// zero when that isn't asked for.
func (s *scope) renewalTime(machine *clusterv1.Machine) time.Time {
	days, expiry := s.controlPlane.Spec.Rollout.Before.CertificatesExpiryDays, machine.Status.CertificatesExpiryDate
	if days == 0 || expiry.IsZero() {
		return time.Time{}
	}
	return expiry.AddDate(0, 0, -int(days))
}

// untilDue is the wait until the next Machine is to be replaced because of the time alone; 0 when none is.
func (s *scope) untilDue() time.Duration {
	next := time.Time{}
	soonest := func(at time.Time) {
		if at.After(s.now) && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	soonest(s.controlPlane.Spec.Rollout.After.Time)
	for _, machine := range s.active() {
		soonest(s.renewalTime(machine))
	}
	if next.IsZero() {
		return 0
	}
	// Times in objects are whole seconds.
	return next.Sub(s.now) + time.Second
}

// infraMatches compares the template that the infrastructure machine was made from. An object that is missing, or
// that says nothing, is no reason for a rollout.
func (s *scope) infraMatches(machine *clusterv1.Machine) bool {
	infra := s.infraMachines[machine.Name]
	if infra == nil {
		return true
	}
	name := infra.GetAnnotations()[clusterv1.TemplateClonedFromNameAnnotation]
	groupKind := infra.GetAnnotations()[clusterv1.TemplateClonedFromGroupKindAnnotation]
	if name == "" || groupKind == "" {
		return true
	}
	ref := s.controlPlane.Spec.MachineTemplate.Spec.InfrastructureRef
	return name == ref.Name && groupKind == schema.GroupKind{Group: ref.APIGroup, Kind: ref.Kind}.String()
}

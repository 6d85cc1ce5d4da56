package controllers

import (
	"fmt"

	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
)

// isInitialized says whether the control plane accepted requests once.
func (s *scope) isInitialized() bool {
	return ptr.Deref(s.controlPlane.Status.Initialization.ControlPlaneInitialized, false) || s.workload.ready
}

// planFounding gives the order to found the cluster to the only Machine that may have it: the first, whose
// KThreesConfig has no order yet, in a cluster of which nothing says that it was founded by another.
func planFounding(s *scope, p *plan) {
	machine := s.firstMachine()
	if s.certificates == nil || s.token == nil || machine == nil {
		return
	}
	config := s.configs[machine.Name]
	if config == nil || config.Annotations[bootstrapv1.OrderAnnotation] != "" || !mayFound(s, machine) {
		return
	}
	p.found = machine
}

// firstMachine is the Machine that could found the cluster, as long as none was given bootstrap data or is going. When
// the leader changes, two operators may have made a first Machine each: the evidence, or else the age, tells which one
// it is, and the other joins.
func (s *scope) firstMachine() *clusterv1.Machine {
	for _, machine := range s.machines {
		if machine.Spec.Bootstrap.DataSecretName != nil || machine.Status.NodeRef.IsDefined() || !machine.DeletionTimestamp.IsZero() {
			return nil
		}
	}
	if recorded := recordedEvidence(s.controlPlane); recorded != nil && s.machines[recorded.Machine] != nil {
		return s.machines[recorded.Machine]
	}
	return s.machines.Oldest()
}

// mayFound says whether a Machine without an order founds the cluster. Evidence that names this very Machine is
// that of a reconcile which was cut short before the order.
func mayFound(s *scope, machine *clusterv1.Machine) bool {
	if recorded := recordedEvidence(s.controlPlane); recorded != nil && recorded.Machine == machine.Name {
		return true
	}
	return !s.initialized || s.mayFoundAnew()
}

// mayFoundAnew says whether a cluster that was founded before may be founded again.
func (s *scope) mayFoundAnew() bool {
	return s.initAllowed() || s.founderReplaced()
}

// initAllowed says whether a human lets the cluster be founded anew.
func (s *scope) initAllowed() bool {
	return s.controlPlane.Annotations[controlplanev1.AllowInitAnnotation] == "true"
}

// planFirst makes the first Machine, unless there is evidence that the cluster existed.
func planFirst(s *scope, p *plan) {
	if holds := failed(s, tokenAvailable, certificatesAvailable, endpointKnown, infrastructureProvisioned, templateExists); len(holds) > 0 {
		p.hold(scaleUp, holds...)
		return
	}
	if s.initialized && !s.mayFoundAnew() {
		p.hold(scaleUp, fmt.Sprintf("%s says that this cluster was founded, but it has no Machines. "+
			"Restore the Machines, or, if all servers and their data are lost for good, "+
			"set the annotation %s=true to found it anew", s.evidence, controlplanev1.AllowInitAnnotation))
		return
	}
	p.create = &creation{first: true, failureDomain: s.nextFailureDomain()}
}

func (p *plan) hold(c change, messages ...string) {
	for _, m := range messages {
		p.waiting = append(p.waiting, hold{change: c, message: m})
	}
}

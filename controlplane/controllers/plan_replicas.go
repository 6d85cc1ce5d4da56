package controllers

import (
	"context"
	"sort"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/collections"
	"sigs.k8s.io/cluster-api/util/failuredomains"
)

// planReplicas adds or removes one server at most.
func planReplicas(s *scope, p *plan) {
	outdated := s.outdated()
	switch {
	case s.controlPlane.Spec.Replicas != nil && s.replicas() == 0:
		return
	case len(s.machines) == 0:
		planFirst(s, p)
	case len(s.active()) < s.replicas():
		planScaleUp(s, p)
	case len(s.active()) > s.replicas():
		planScaleDown(s, p, outdated)
	case len(outdated) > 0 && s.maxSurge() > 0:
		planScaleUp(s, p)
	case len(outdated) > 0:
		planScaleDown(s, p, outdated)
	}
}

func planScaleUp(s *scope, p *plan) {
	if holds := failed(s, mayAddServer...); len(holds) > 0 {
		p.hold(scaleUp, holds...)
		return
	}
	p.create = &creation{failureDomain: s.nextFailureDomain()}
}

func planScaleDown(s *scope, p *plan, outdated collections.Machines) {
	machine := s.machineToDelete(outdated)
	holds := failed(s, mayRemoveServer...)
	if hold := quorumWithout(s, machine); hold != "" {
		holds = append(holds, hold)
	}
	if len(holds) > 0 {
		p.hold(scaleDown, holds...)
		return
	}
	p.delete = machine
}

// machineToDelete picks, in this order, a Machine that a human marked, an outdated one, one in the failure domain
// with the most Machines; among equals one without a healthy etcd member, one that isn't K3s' remover, then the oldest.
func (s *scope) machineToDelete(outdated collections.Machines) *clusterv1.Machine {
	eligible := s.active()
	if marked := eligible.Filter(collections.HasAnnotationKey(clusterv1.DeleteMachineAnnotation)); len(marked) > 0 {
		eligible = marked
	} else if old := eligible.Filter(inSet(outdated)); len(old) > 0 {
		eligible = old
	}
	if domain := failuredomains.PickMost(context.Background(), s.controlPlaneDomains(), s.active(), eligible); domain != "" {
		if in := eligible.Filter(collections.InFailureDomains(domain)); len(in) > 0 {
			eligible = in
		}
	}
	candidates := eligible.SortedByCreationTimestamp()
	for _, first := range []func(*clusterv1.Machine) bool{
		func(m *clusterv1.Machine) bool { return !s.workload.removesMembers(m) },
		func(m *clusterv1.Machine) bool { return !s.isHealthyVoter(m) },
	} {
		sort.SliceStable(candidates, func(i, j int) bool { return first(candidates[i]) && !first(candidates[j]) })
	}
	return candidates[0]
}

// nextFailureDomain is the failure domain with the fewest up-to-date Machines; empty when the cluster has none.
func (s *scope) nextFailureDomain() string {
	upToDate := s.active().Filter(collections.Not(inSet(s.outdated())))
	return failuredomains.PickFewest(context.Background(), s.controlPlaneDomains(), s.active(), upToDate)
}

// controlPlaneDomains are the failure domains that may hold servers.
func (s *scope) controlPlaneDomains() []clusterv1.FailureDomain {
	var domains []clusterv1.FailureDomain
	for _, d := range s.cluster.Status.FailureDomains {
		if d.ControlPlane != nil && *d.ControlPlane {
			domains = append(domains, d)
		}
	}
	return domains
}

// maxSurge is how many Machines there may be above replicas during a rollout.
func (s *scope) maxSurge() int {
	if surge := s.controlPlane.Spec.Rollout.Strategy.RollingUpdate.MaxSurge; surge != nil {
		return surge.IntValue()
	}
	return 1
}

func inSet(set collections.Machines) collections.Func {
	return func(m *clusterv1.Machine) bool {
		_, ok := set[m.Name]
		return ok
	}
}

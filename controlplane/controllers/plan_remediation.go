package controllers

import (
	"fmt"
	"sort"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/collections"

	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
)

// defaultMinHealthyPeriod is how long a replacement must live for its failure to count as a new one.
const defaultMinHealthyPeriod = time.Hour

// remediation is the replacement of an unhealthy Machine. It is deleted now; a later scale up makes the new one.
type remediation struct {
	machine *clusterv1.Machine
	record  remediationRecord
}

// refusal says why an unhealthy Machine isn't replaced now. The reason tells whether that will pass.
type refusal struct {
	machine *clusterv1.Machine
	reason  string
	message string
}

// toRemediate are the Machines that a MachineHealthCheck found unhealthy and left to their owner.
func (s *scope) toRemediate() collections.Machines {
	return s.machines.Filter(collections.IsUnhealthyAndOwnerRemediated)
}

// planRemediation deletes one unhealthy Machine at most. With several, all dead members leave etcd before the first
// replacement joins: etcd takes no member while a voter is down.
func planRemediation(s *scope, p *plan) {
	unhealthy := s.toRemediate().Filter(collections.ActiveMachines)
	if len(unhealthy) == 0 {
		// Not beside the order to found anew, which rests on the record and writes to the same object.
		p.remediated = remediationOwed(s.controlPlane) != nil && len(s.active()) >= s.replicas() && p.found == nil
		return
	}
	machine := mostBroken(s, unhealthy)
	record, wait := nextRemediation(s, machine)
	if reason, message := mayRemediate(s, machine, record, wait); message != "" {
		p.refused = &refusal{machine: machine, reason: reason, message: message}
		p.lookAgain(wait)
		return
	}
	p.remediate = &remediation{machine: machine, record: record}
}

// mostBroken picks the Machine that a human marked, then one that never got a Node, then one without a healthy etcd
// member; among equals the oldest.
func mostBroken(s *scope, unhealthy collections.Machines) *clusterv1.Machine {
	rank := func(m *clusterv1.Machine) int {
		switch {
		case annotations.HasRemediateMachine(m):
			return 0
		case !m.Status.NodeRef.IsDefined():
			return 1
		case s.embeddedEtcd() && !s.isHealthyVoter(m):
			return 2
		}
		return 3
	}
	machines := unhealthy.SortedByCreationTimestamp()
	sort.SliceStable(machines, func(i, j int) bool { return rank(machines[i]) < rank(machines[j]) })
	return machines[0]
}

// nextRemediation is the record of a remediation now, and how long spec.remediation.retryPeriodSeconds still asks
// to wait. A replacement that fails before it was healthy for long counts as another try for the same Machine.
func nextRemediation(s *scope, machine *clusterv1.Machine) (remediationRecord, time.Duration) {
	record := remediationRecord{Machine: machine.Name, Timestamp: metav1.NewTime(s.now.UTC().Truncate(time.Second))}
	if owed := remediationOwed(s.controlPlane); owed != nil && owed.Machine != machine.Name {
		// The record of the other is replaced, but not its count.
		record.RetryCount = owed.RetryCount
	}
	last := remediationFor(machine)
	if last == nil || s.now.Sub(last.Timestamp.Time) >= minHealthyPeriod(s.controlPlane) {
		return record, 0
	}
	record.RetryCount = max(record.RetryCount, last.RetryCount+1)
	period := time.Duration(ptr.Deref(s.controlPlane.Spec.Remediation.RetryPeriodSeconds, 0)) * time.Second
	return record, max(0, period-s.now.Sub(last.Timestamp.Time))
}

func minHealthyPeriod(controlPlane *controlplanev1.KThreesControlPlane) time.Duration {
	if seconds := controlPlane.Spec.Remediation.MinHealthyPeriodSeconds; seconds != nil {
		return time.Duration(*seconds) * time.Second
	}
	return defaultMinHealthyPeriod
}

// mayRemediate says why an unhealthy Machine isn't replaced now; nothing when it may be.
func mayRemediate(s *scope, machine *clusterv1.Machine, record remediationRecord, wait time.Duration) (reason, message string) {
	limit := s.controlPlane.Spec.Remediation.MaxRetry
	switch {
	case wait > 0:
		// The time, not the wait: a message that counts down would be written over and over.
		return controlplanev1.RemediationDeferredReason, "the last replacement failed less than spec.remediation.retryPeriodSeconds ago; the next try is at " +
			s.now.Add(wait).UTC().Format(time.RFC3339)
	case limit != nil && record.RetryCount > *limit:
		return controlplanev1.CannotBeRemediatedReason, fmt.Sprintf("%d replacements failed already, as many as spec.remediation.maxRetry allows", *limit)
	}
	if message := topologyVersionSettled(s); message != "" {
		return controlplanev1.RemediationDeferredReason, message
	}
	if !s.isInitialized() {
		// The first server never served: nothing is lost with it.
		return "", ""
	}
	return mayLose(s, machine)
}

// mayLose says why a living cluster can't do without a Machine now. Some reasons pass by themselves.
func mayLose(s *scope, machine *clusterv1.Machine) (reason, message string) {
	if len(s.machines) <= 1 {
		return controlplanev1.CannotBeRemediatedReason, "it is the only server, and the cluster's data would be lost with it"
	}
	if holds := failed(s, noOtherDeletion, noServerStarting, apiReachable, membersKnown); len(holds) > 0 {
		return controlplanev1.RemediationDeferredReason, holds[0]
	}
	if message := anotherServes(s, machine); message != "" {
		return controlplanev1.CannotBeRemediatedReason, message
	}
	return controlplanev1.CannotBeRemediatedReason, quorumWithout(s, machine)
}

// noServerStarting waits for the servers that are on their way up, unless they were found unhealthy.
func noServerStarting(s *scope) string {
	for _, name := range s.machines.Names() {
		machine := s.machines[name]
		if !machine.Status.NodeRef.IsDefined() && !collections.IsUnhealthy(machine) {
			return "Machine " + name + " is still being provisioned"
		}
	}
	return ""
}

// anotherServes makes sure that a server stays which can let the replacement in.
func anotherServes(s *scope, machine *clusterv1.Machine) string {
	for name, other := range s.machines {
		if name != machine.Name && s.workload.serverReady(other) {
			return ""
		}
	}
	return "no other server is ready"
}

// founderReplaced says whether the first server was taken away by remediation before it ever served. Its cluster
// never lived, so that founding it anew loses nothing.
func (s *scope) founderReplaced() bool {
	recorded, owed := recordedEvidence(s.controlPlane), remediationOwed(s.controlPlane)
	return recorded != nil && owed != nil && recorded.Machine == owed.Machine &&
		!s.isInitialized() && !s.endpointLives && !clusterInitialized(s.cluster)
}

package controllers

import (
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
	"github.com/capk3s/capk3s/pkg/custody"
)

// ownedConditions are the conditions that nobody else writes.
var ownedConditions = []string{
	controlplanev1.AvailableCondition,
	controlplanev1.InitializedCondition,
	controlplanev1.TokenAvailableCondition,
	controlplanev1.CertificatesAvailableCondition,
	controlplanev1.EtcdClusterHealthyCondition,
	controlplanev1.MachinesReadyCondition,
	controlplanev1.MachinesUpToDateCondition,
	controlplanev1.RollingOutCondition,
	controlplanev1.ScalingUpCondition,
	controlplanev1.ScalingDownCondition,
	controlplanev1.RemediatingCondition,
	controlplanev1.DeletingCondition,
}

// computeConditions are the conditions of a control plane that is not being deleted.
func computeConditions(s *scope, p *plan) []metav1.Condition {
	return []metav1.Condition{
		initializedCondition(s),
		tokenCondition(s),
		certificatesCondition(s),
		etcdCondition(s),
		machinesCondition(s, clusterv1.MachineReadyCondition, controlplanev1.MachinesReadyCondition,
			clusterv1.NotReadyReason, clusterv1.ReadyUnknownReason, clusterv1.ReadyReason),
		machinesCondition(s, clusterv1.MachineUpToDateCondition, controlplanev1.MachinesUpToDateCondition,
			clusterv1.NotUpToDateReason, clusterv1.UpToDateUnknownReason, clusterv1.UpToDateReason),
		rollingOutCondition(s, p),
		scalingUpCondition(s, p),
		scalingDownCondition(s, p),
		remediatingCondition(s, p),
		{Type: controlplanev1.DeletingCondition, Status: metav1.ConditionFalse, Reason: clusterv1.NotDeletingReason},
		availableCondition(s),
	}
}

func initializedCondition(s *scope) metav1.Condition {
	if s.isInitialized() {
		return metav1.Condition{Type: controlplanev1.InitializedCondition, Status: metav1.ConditionTrue, Reason: controlplanev1.InitializedReason}
	}
	return metav1.Condition{
		Type: controlplanev1.InitializedCondition, Status: metav1.ConditionFalse, Reason: controlplanev1.NotInitializedReason,
		Message: "no server has accepted requests yet",
	}
}

func tokenCondition(s *scope) metav1.Condition {
	return custodyCondition(controlplanev1.TokenAvailableCondition, s.tokenErr)
}

func certificatesCondition(s *scope) metav1.Condition {
	c := custodyCondition(controlplanev1.CertificatesAvailableCondition, s.certificatesErr)
	if soon := s.expireSoon(); len(soon) > 0 && c.Status == metav1.ConditionTrue {
		c.Reason, c.Message = controlplanev1.CertificatesExpireSoonReason, bullets(soon)
	}
	return c
}

// custodyCondition is true without an error, false with one that a human must see, and unknown with any other.
func custodyCondition(conditionType string, err error) metav1.Condition {
	var known *custody.Error
	switch {
	case err == nil:
		return metav1.Condition{Type: conditionType, Status: metav1.ConditionTrue, Reason: clusterv1.AvailableReason}
	case errors.As(err, &known):
		return metav1.Condition{Type: conditionType, Status: metav1.ConditionFalse, Reason: known.Reason, Message: known.Message}
	default:
		return metav1.Condition{
			Type: conditionType, Status: metav1.ConditionUnknown, Reason: clusterv1.InternalErrorReason,
			Message: "the Secrets could not be read or written; the log says why",
		}
	}
}

func etcdCondition(s *scope) metav1.Condition {
	c := metav1.Condition{Type: controlplanev1.EtcdClusterHealthyCondition}
	switch {
	case !s.embeddedEtcd():
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, controlplanev1.EtcdHealthyReason, "the servers use an external datastore"
	case s.workload.membersErr != nil:
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, controlplanev1.EtcdUnknownReason, "etcd's members can't be listed: "+s.workload.membersErr.Error()
	default:
		messages := etcdProblems(s)
		c.Status, c.Reason = metav1.ConditionTrue, controlplanev1.EtcdHealthyReason
		if len(messages) > 0 {
			c.Status, c.Reason, c.Message = metav1.ConditionFalse, controlplanev1.EtcdNotHealthyReason, bullets(messages)
		}
	}
	return c
}

func etcdProblems(s *scope) []string {
	var messages []string
	for _, name := range s.machines.Names() {
		if status, message := s.memberHealth(s.machines[name]); status != metav1.ConditionTrue {
			messages = append(messages, fmt.Sprintf("Machine %s: %s", name, message))
		}
	}
	for _, orphan := range s.orphans() {
		messages = append(messages, orphan+" has no Machine")
	}
	return messages
}

// machinesCondition aggregates a condition of the Machines.
func machinesCondition(s *scope, from, to, issue, unknown, good string) metav1.Condition {
	if len(s.machines) == 0 {
		return metav1.Condition{Type: to, Status: metav1.ConditionTrue, Reason: clusterv1.NoReplicasReason}
	}
	c, err := conditions.NewAggregateCondition(s.machines.SortedByCreationTimestamp(), from,
		conditions.TargetConditionType(to),
		conditions.CustomMergeStrategy{MergeStrategy: conditions.DefaultMergeStrategy(
			conditions.ComputeReasonFunc(conditions.GetDefaultComputeMergeReasonFunc(issue, unknown, good)),
		)},
	)
	if err != nil {
		return metav1.Condition{Type: to, Status: metav1.ConditionUnknown, Reason: clusterv1.InternalErrorReason, Message: err.Error()}
	}
	return *c
}

func rollingOutCondition(s *scope, p *plan) metav1.Condition {
	outdated := s.outdated()
	if len(outdated) == 0 {
		return metav1.Condition{Type: controlplanev1.RollingOutCondition, Status: metav1.ConditionFalse, Reason: clusterv1.NotRollingOutReason}
	}
	var messages []string
	for _, name := range outdated.Names() {
		messages = append(messages, fmt.Sprintf("Machine %s: %s", name, strings.Join(s.outdatedReasons(outdated[name]), ", ")))
	}
	return metav1.Condition{
		Type: controlplanev1.RollingOutCondition, Status: metav1.ConditionTrue, Reason: clusterv1.RollingOutReason,
		Message: withHolds(fmt.Sprintf("Rolling out %d not up-to-date replicas\n%s", len(outdated), bullets(messages)), p, scaleUp, scaleDown),
	}
}

func scalingUpCondition(s *scope, p *plan) metav1.Condition {
	if len(s.active()) >= s.replicas() {
		return metav1.Condition{Type: controlplanev1.ScalingUpCondition, Status: metav1.ConditionFalse, Reason: clusterv1.NotScalingUpReason}
	}
	return metav1.Condition{
		Type: controlplanev1.ScalingUpCondition, Status: metav1.ConditionTrue, Reason: clusterv1.ScalingUpReason,
		Message: withHolds(fmt.Sprintf("Scaling up from %d to %d replicas", len(s.active()), s.replicas()), p, scaleUp),
	}
}

func scalingDownCondition(s *scope, p *plan) metav1.Condition {
	if len(s.machines) <= s.replicas() && len(s.deleting()) == 0 {
		return metav1.Condition{Type: controlplanev1.ScalingDownCondition, Status: metav1.ConditionFalse, Reason: clusterv1.NotScalingDownReason}
	}
	message := fmt.Sprintf("Scaling down from %d to %d replicas", len(s.machines), s.replicas())
	if deleting := s.deleting(); len(deleting) > 0 {
		message += "\n" + bullets([]string{"Machine " + strings.Join(deleting.Names(), ", ") + " is being deleted"})
	}
	return metav1.Condition{
		Type: controlplanev1.ScalingDownCondition, Status: metav1.ConditionTrue, Reason: clusterv1.ScalingDownReason,
		Message: withHolds(message, p, scaleDown, removeMember),
	}
}

// withHolds adds to a message what the changes wait for.
func withHolds(message string, p *plan, changes ...change) string {
	var messages []string
	for _, h := range p.waiting {
		for _, c := range changes {
			if h.change == c {
				messages = append(messages, h.message)
			}
		}
	}
	if len(messages) == 0 {
		return message
	}
	return message + "\n" + bullets(messages)
}

// availableCondition is true when the API can be used: the CAs and the token are there, a server is ready and etcd
// has its quorum.
func availableCondition(s *scope) metav1.Condition {
	c := metav1.Condition{Type: controlplanev1.AvailableCondition, Status: metav1.ConditionFalse, Reason: clusterv1.NotAvailableReason}
	if !s.isInitialized() {
		c.Message = "no server has accepted requests yet"
		return c
	}
	messages := failed(s, tokenAvailable, certificatesAvailable, anyServerReady, etcdHasQuorum)
	switch {
	case len(messages) == 0:
		c.Status, c.Reason = metav1.ConditionTrue, clusterv1.AvailableReason
	case s.workload.nodesErr != nil:
		c.Status, c.Reason = metav1.ConditionUnknown, controlplanev1.ConnectionDownReason
		c.Message = bullets(messages)
	default:
		c.Message = bullets(messages)
	}
	return c
}

func anyServerReady(s *scope) string {
	if message := apiReachable(s); message != "" {
		return message
	}
	for _, machine := range s.machines {
		if s.workload.serverReady(machine) {
			return ""
		}
	}
	return "no server is ready"
}

func etcdHasQuorum(s *scope) string {
	if !s.embeddedEtcd() {
		return ""
	}
	if message := membersKnown(s); message != "" {
		return message
	}
	if healthy, need := s.healthyVoters(nil), quorum(s.workload.voters()); healthy < need {
		return fmt.Sprintf("etcd has %d healthy voters of %d and needs %d", healthy, s.workload.voters(), need)
	}
	return ""
}

// machineConditions are the conditions of a Machine that the control plane answers for.
func machineConditions(s *scope, machine *clusterv1.Machine) []metav1.Condition {
	computed := []metav1.Condition{upToDateCondition(s, machine)}
	if s.embeddedEtcd() {
		computed = append(computed, memberCondition(s, machine))
	}
	return computed
}

func upToDateCondition(s *scope, machine *clusterv1.Machine) metav1.Condition {
	reasons := s.outdatedReasons(machine)
	if kubelet := runningVersion(machine); kubelet != machine.Spec.Version {
		reasons = append(reasons, fmt.Sprintf("Node runs version %s, Machine asks for %s", kubelet, machine.Spec.Version))
	}
	if len(reasons) == 0 {
		return metav1.Condition{Type: controlplanev1.MachineUpToDateCondition, Status: metav1.ConditionTrue, Reason: clusterv1.MachineUpToDateReason}
	}
	return metav1.Condition{
		Type: controlplanev1.MachineUpToDateCondition, Status: metav1.ConditionFalse, Reason: clusterv1.MachineNotUpToDateReason,
		Message: bullets(reasons),
	}
}

func memberCondition(s *scope, machine *clusterv1.Machine) metav1.Condition {
	status, message := s.memberHealth(machine)
	c := metav1.Condition{Type: controlplanev1.MachineEtcdMemberHealthyCondition, Status: status, Message: message}
	switch status {
	case metav1.ConditionTrue:
		c.Reason, c.Message = controlplanev1.EtcdHealthyReason, ""
	case metav1.ConditionFalse:
		c.Reason = controlplanev1.EtcdNotHealthyReason
	default:
		c.Reason = controlplanev1.EtcdUnknownReason
	}
	return c
}

// bullets lists messages as Cluster API does.
func bullets(messages []string) string {
	return "* " + strings.Join(messages, "\n* ")
}

package controllers

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capk3s/capk3s/pkg/k3s"
)

// check answers one "may I". It returns what is waited for, or nothing when the answer is yes.
type check func(*scope) string

// mayAddServer are the checks before another server joins.
var mayAddServer = []check{
	tokenAvailable,          // a server that joins with a wrong token never starts
	certificatesAvailable,   // nor one without the CAs
	endpointKnown,           // it joins through the endpoint
	templateExists,          // there must be something to make its machine of
	topologyVersionSettled,  // Cluster API's topology controller is about to change the version
	noOtherDeletion,         // one change at a time
	apiReachable,            // the cluster must be able to let it in
	everyServerReady,        // a server that comes up has to be up before the next one
	membersMatchMachines,    // a member without a Machine may be a server that a restore forgot
	everyMemberHealthyVoter, // etcd refuses a learner beside another, and any while a voter is down
}

// mayRemoveServer are the checks before a server is deleted; the quorum is checked for the chosen one.
var mayRemoveServer = []check{
	topologyVersionSettled,
	noOtherDeletion,
	apiReachable,
	membersMatchMachines,
	noMemberJoining, // one change at a time
}

// failed runs checks and returns what they wait for.
func failed(s *scope, checks ...check) []string {
	var holds []string
	for _, c := range checks {
		if message := c(s); message != "" {
			holds = append(holds, message)
		}
	}
	return holds
}

func tokenAvailable(s *scope) string {
	if s.token == nil {
		return "the join token is not available"
	}
	return ""
}

func certificatesAvailable(s *scope) string {
	if s.certificates == nil {
		return "the certificate authorities are not available"
	}
	return ""
}

func endpointKnown(s *scope) string {
	if !s.cluster.Spec.ControlPlaneEndpoint.IsValid() {
		return "the Cluster has no control plane endpoint yet"
	}
	return ""
}

func templateExists(s *scope) string {
	if s.template == nil {
		ref := s.controlPlane.Spec.MachineTemplate.Spec.InfrastructureRef
		return fmt.Sprintf("%s %s doesn't exist", ref.Kind, ref.Name)
	}
	return ""
}

func infrastructureProvisioned(s *scope) string {
	if !ptr.Deref(s.cluster.Status.Initialization.InfrastructureProvisioned, false) {
		return "the Cluster's infrastructure is not provisioned yet"
	}
	return ""
}

func topologyVersionSettled(s *scope) string {
	if want := s.cluster.Spec.Topology.Version; want != "" && want != s.controlPlane.Spec.Version {
		return fmt.Sprintf("the Cluster's topology is about to change the version to %s", want)
	}
	return ""
}

// noOtherDeletion lets a replacement of the only server pass: that one is held back until the replacement votes.
func noOtherDeletion(s *scope) string {
	deleting := s.deleting()
	if len(deleting) == 0 || len(s.active()) == 0 && s.workload.voters() == 1 {
		return ""
	}
	return "Machine " + strings.Join(deleting.Names(), ", ") + " is being deleted"
}

func apiReachable(s *scope) string {
	if err := s.workload.nodesErr; err != nil {
		return "the workload cluster can't be reached: " + err.Error()
	}
	return ""
}

func membersKnown(s *scope) string {
	if err := s.workload.membersErr; err != nil && s.embeddedEtcd() {
		return "etcd's members can't be listed: " + err.Error()
	}
	return ""
}

func everyServerReady(s *scope) string {
	for _, name := range s.machines.Names() {
		node := s.workload.nodeOf(s.machines[name])
		switch {
		case node == nil:
			return fmt.Sprintf("Machine %s has no Node yet", name)
		case !s.machines[name].Status.NodeRef.IsDefined():
			return fmt.Sprintf("Machine %s has no nodeRef yet", name)
		case k3s.NodeReady(node) != metav1.ConditionTrue:
			return fmt.Sprintf("Node %s of Machine %s is not ready", node.Name, name)
		}
	}
	return ""
}

func membersMatchMachines(s *scope) string {
	if !s.embeddedEtcd() {
		return ""
	}
	if message := membersKnown(s); message != "" {
		return message
	}
	if orphans := s.orphans(); len(orphans) > 0 {
		return strings.Join(orphans, ", ") + " has no Machine"
	}
	return ""
}

func noMemberJoining(s *scope) string {
	if joining := s.workload.joining(); joining != "" {
		return "etcd has " + joining
	}
	return ""
}

func everyMemberHealthyVoter(s *scope) string {
	if !s.embeddedEtcd() {
		return ""
	}
	if message := noMemberJoining(s); message != "" {
		return message
	}
	for _, name := range s.machines.Names() {
		if status, message := s.memberHealth(s.machines[name]); status != metav1.ConditionTrue {
			return fmt.Sprintf("etcd member of Machine %s is not healthy: %s", name, message)
		}
	}
	return ""
}

// quorumWithout says why a Machine's member must stay: without it fewer healthy voters than the quorum would be
// left, or none at all.
func quorumWithout(s *scope, machine *clusterv1.Machine) string {
	if !s.embeddedEtcd() || s.workload.membersErr != nil {
		return ""
	}
	member := s.workload.member(s.workload.memberNameOf(machine))
	if member == nil || member.IsLearner {
		return ""
	}
	voters, healthy := s.workload.voters()-1, s.healthyVoters(machine)
	switch {
	case voters == 0:
		return fmt.Sprintf("Machine %s has the only etcd voter; a replacement must vote first", machine.Name)
	case healthy < quorum(voters):
		return fmt.Sprintf("without Machine %s etcd would have %d healthy voters of %d and needs %d", machine.Name, healthy, voters, quorum(voters))
	}
	return ""
}

// isHealthyVoter says whether a Machine's etcd member is known to be a healthy voter.
func (s *scope) isHealthyVoter(machine *clusterv1.Machine) bool {
	status, _ := s.memberHealth(machine)
	return status == metav1.ConditionTrue
}

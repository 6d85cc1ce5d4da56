package controllers

import (
	"maps"
	"net/url"
	"slices"

	corev1 "k8s.io/api/core/v1"

	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
	"github.com/capk3s/capk3s/pkg/k3s"
)

// planOrphans has an etcd member removed that has neither a Machine nor a Node, for example that of a server whose
// Node was deleted while K3s could not remove the member. K3s removes members only by way of their Nodes, so that a
// Node is made which stands in for the lost one, and deleted when it has served.
func planOrphans(s *scope, p *plan) {
	if !s.embeddedEtcd() || s.workload.nodesErr != nil || s.workload.membersErr != nil {
		return
	}
	if standIn := s.workload.standIn; standIn != nil {
		// K3s' progress shows in etcd's members, which can't be watched.
		p.lookAgain(pollMembers)
		if standInServed(s, standIn) {
			p.dismiss = standIn
		}
		return
	}
	orphan := orphanMember(s)
	if orphan == nil || p.remove != nil || p.standIn != nil {
		return
	}
	// What it waits for shows in etcd's members, too.
	p.lookAgain(pollUnreachable)
	if holds := failed(s, noServerStarting, noOtherDeletion, noMemberJoining); len(holds) > 0 {
		p.hold(removeMember, holds...)
		return
	}
	if server := serverOfUnknownMember(s); server != "" {
		p.hold(removeMember, "etcd member "+orphan.Name+" has no Machine and no Node, but may be that of "+server+", whose member is not known yet")
		return
	}
	if healthy, voters := s.healthyVoters(nil), s.workload.voters()-1; healthy < quorum(voters) {
		p.hold(removeMember, "etcd member "+orphan.Name+" has no Machine and no Node, but without it too few of the others would be healthy")
		return
	}
	p.standIn = orphan
}

// orphanMember is a voter that no Machine and no server's Node knows. K3s itself evicts members that never vote.
func orphanMember(s *scope) *k3s.Member {
	known := map[string]bool{}
	for _, machine := range s.machines {
		known[s.workload.memberNameOf(machine)] = true
		known[machine.Annotations[controlplanev1.EtcdMemberAnnotation]] = true
	}
	for _, node := range s.workload.nodes {
		known[k3s.EtcdMemberName(node)] = true
	}
	for i := range s.workload.members {
		if m := &s.workload.members[i]; m.Started() && !m.IsLearner && !known[m.Name] {
			return m
		}
	}
	return nil
}

// serverOfUnknownMember names a server whose Node doesn't tell yet which member is its own: a member that votes already
// may be without a name on its Node for a while.
func serverOfUnknownMember(s *scope) string {
	for _, name := range s.machines.Names() {
		if s.workload.memberNameOf(s.machines[name]) == "" {
			return "Machine " + name
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.workload.nodes)) {
		if k3s.EtcdMemberName(s.workload.nodes[name]) == "" {
			return "Node " + name
		}
	}
	return ""
}

// standInServed says whether K3s has removed the member, or refused to: then it takes the order off the Node.
func standInServed(s *scope, node *corev1.Node) bool {
	if node.Annotations[k3s.EtcdRemoveAnnotation] == "true" {
		return false
	}
	removed := node.Annotations[k3s.EtcdRemovedNodeNameAnnotation]
	return removed == "" || s.workload.member(removed) == nil
}

// peerHost is the address of a member, as K3s compares it.
func peerHost(member *k3s.Member) string {
	if len(member.PeerURLs) == 0 {
		return ""
	}
	peer, err := url.Parse(member.PeerURLs[0])
	if err != nil {
		return ""
	}
	return peer.Hostname()
}

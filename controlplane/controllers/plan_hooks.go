package controllers

import (
	"sort"
	"strings"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
	"github.com/capk3s/capk3s/pkg/k3s"
)

// planHooks looks at the Machines that are being deleted, the first deleted first. Their infrastructure is held
// back until K3s has removed their etcd member; one member is removed at a time.
func planHooks(s *scope, p *plan) {
	for _, machine := range heldMachines(s) {
		if reason := memberGone(s, machine); reason != "" {
			p.release = append(p.release, machine)
			continue
		}
		if !waitsForHook(machine) {
			continue
		}
		planRemoval(s, p, machine)
		return
	}
}

// heldMachines are the deleting Machines with our hook, in the order of their deletion.
func heldMachines(s *scope) []*clusterv1.Machine {
	var held []*clusterv1.Machine
	for _, machine := range s.deleting() {
		if _, ok := machine.Annotations[controlplanev1.PreTerminateHookAnnotation]; ok {
			held = append(held, machine)
		}
	}
	sort.Slice(held, func(i, j int) bool {
		a, b := held[i], held[j]
		if !a.DeletionTimestamp.Equal(b.DeletionTimestamp) {
			return a.DeletionTimestamp.Before(b.DeletionTimestamp)
		}
		return a.Name < b.Name
	})
	return held
}

// memberGone says why a Machine need not be held back; empty when it must.
func memberGone(s *scope, machine *clusterv1.Machine) string {
	w := &s.workload
	switch {
	case !s.embeddedEtcd():
		return "the cluster has an external datastore"
	case !machine.Status.NodeRef.IsDefined() && w.memberNameOf(machine) == "":
		return "the Machine never joined"
	case w.nodesErr != nil || w.membersErr != nil:
		return ""
	case w.member(w.memberNameOf(machine)) != nil:
		return ""
	}
	node := w.nodeOf(machine)
	if node == nil {
		return "Node and etcd member are gone"
	}
	// Once K3s has recorded the removal it leaves further requests alone, such as one from an outdated view of the Node.
	if removalPending(node, w.memberNameOf(machine)) {
		return ""
	}
	return "the etcd member is gone"
}

// waitsForHook says whether the Machine was drained and ours is the last hook that holds it back.
func waitsForHook(machine *clusterv1.Machine) bool {
	if conditions.GetReason(machine, clusterv1.MachineDeletingCondition) != clusterv1.MachineDeletingWaitingForPreTerminateHookReason {
		return false
	}
	for annotation := range machine.Annotations {
		if strings.HasPrefix(annotation, clusterv1.PreTerminateDeleteHookAnnotationPrefix) && annotation != controlplanev1.PreTerminateHookAnnotation {
			return false
		}
	}
	return true
}

// planRemoval asks K3s to remove a Machine's etcd member as soon as that is safe.
func planRemoval(s *scope, p *plan, machine *clusterv1.Machine) {
	// K3s' progress shows on the Node, which is watched, but also in etcd's members, which are not.
	p.lookAgain(pollMembers)
	holds := failed(s, apiReachable, membersKnown, noMemberJoining)
	if hold := quorumWithout(s, machine); hold != "" {
		holds = append(holds, hold)
	}
	if len(holds) > 0 {
		p.hold(removeMember, holds...)
		return
	}
	node, member := s.workload.nodeOf(machine), s.workload.memberNameOf(machine)
	switch {
	case node == nil && s.workload.standIn == nil:
		p.standIn = s.workload.member(member)
	case node == nil:
		p.hold(removeMember, "the Node of Machine "+machine.Name+" is gone; K3s is removing its etcd member "+member)
	case node.Annotations[k3s.EtcdRemoveAnnotation] == "true":
		p.hold(removeMember, "K3s is removing etcd member "+member+" of Machine "+machine.Name)
	default:
		p.remove = &removal{machine: machine, node: node, member: member}
	}
}

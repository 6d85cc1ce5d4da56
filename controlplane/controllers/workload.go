package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
	"github.com/capk3s/capk3s/pkg/k3s"
)

// workload is what was seen of the workload cluster. A dead cluster is normal: errors are kept here and become
// conditions.
type workload struct {
	// ready says whether a kube-apiserver answered that it is ready.
	ready bool

	// nodes are the Nodes of servers by name; nodesErr says why they could not be listed.
	nodes    map[string]*corev1.Node
	nodesErr error

	// standIn is a Node that stands in for a lost one; see planOrphans.
	standIn *corev1.Node

	// members are etcd's members; membersErr says why they could not be listed.
	members    []k3s.Member
	membersErr error

	// remover is the host whose K3s removes members from etcd; empty when that isn't known.
	remover string
}

// errNoServerYet says that there is nothing to ask.
var errNoServerYet = errors.New("no server was started yet")

// readWorkload reads the workload cluster, unless it is known that there is none yet.
func (r *Reconciler) readWorkload(ctx context.Context, s *scope) {
	w := &s.workload
	if !s.cluster.Spec.ControlPlaneEndpoint.IsValid() || s.certificates == nil || len(s.machines) == 0 {
		w.nodesErr, w.membersErr = errNoServerYet, errNoServerYet
		return
	}
	w.nodesErr = r.listNodes(ctx, s.cluster, w)
	supervisor, err := r.supervisor(s)
	if err != nil {
		w.membersErr = err
		return
	}
	if w.nodesErr != nil {
		// While Cluster API holds the connection to be down, one cheap question says whether it is worth asking on.
		if w.membersErr = supervisor.Ready(ctx); w.membersErr != nil {
			return
		}
	}
	w.ready = true
	if s.embeddedEtcd() {
		w.members, w.membersErr = supervisor.Members(ctx)
		r.readRemovedNodes(ctx, s)
		r.readRemover(ctx, s)
	}
}

func (r *Reconciler) listNodes(ctx context.Context, cluster *clusterv1.Cluster, w *workload) error {
	workloadClient, err := r.ClusterCache.GetClient(ctx, client.ObjectKeyFromObject(cluster))
	if err != nil {
		return err
	}
	if err := r.watchNodes(ctx, cluster); err != nil {
		return err
	}
	servers, standIns := &corev1.NodeList{}, &corev1.NodeList{}
	if err := workloadClient.List(ctx, servers, client.HasLabels{k3s.ControlPlaneLabel}); err != nil {
		return fmt.Errorf("listing the Nodes of Cluster %s: %w", cluster.Name, err)
	}
	if err := workloadClient.List(ctx, standIns, client.HasLabels{controlplanev1.StandInLabel}); err != nil {
		return fmt.Errorf("listing the Nodes of Cluster %s: %w", cluster.Name, err)
	}
	w.nodes = make(map[string]*corev1.Node, len(servers.Items))
	for i := range servers.Items {
		w.nodes[servers.Items[i].Name] = &servers.Items[i]
	}
	if len(standIns.Items) > 0 {
		w.standIn = &standIns.Items[0]
	}
	return nil
}

// nodeOf is the Node of a Machine, or nil.
func (w *workload) nodeOf(machine *clusterv1.Machine) *corev1.Node {
	if machine.Status.NodeRef.IsDefined() {
		return w.nodes[machine.Status.NodeRef.Name]
	}
	if machine.Spec.ProviderID == "" {
		return nil
	}
	for _, node := range w.nodes {
		if node.Spec.ProviderID == machine.Spec.ProviderID {
			return node
		}
	}
	return nil
}

// serverReady says whether a Machine has a Node that is ready.
func (w *workload) serverReady(machine *clusterv1.Machine) bool {
	node := w.nodeOf(machine)
	return node != nil && k3s.NodeReady(node) == metav1.ConditionTrue
}

// memberNameOf is the name of a Machine's etcd member as its Node has it, or as it was recorded before.
func (w *workload) memberNameOf(machine *clusterv1.Machine) string {
	if node := w.nodeOf(machine); node != nil {
		if name := k3s.EtcdMemberName(node); name != "" {
			return name
		}
	}
	return machine.Annotations[controlplanev1.EtcdMemberAnnotation]
}

// member is the etcd member with that name, or nil.
func (w *workload) member(name string) *k3s.Member {
	i := slices.IndexFunc(w.members, func(m k3s.Member) bool { return name != "" && m.Name == name })
	if i < 0 {
		return nil
	}
	return &w.members[i]
}

// voters counts the members that vote.
func (w *workload) voters() int {
	n := 0
	for _, m := range w.members {
		if !m.IsLearner {
			n++
		}
	}
	return n
}

// joining names a member that isn't a voter yet; empty when there is none.
func (w *workload) joining() string {
	for _, m := range w.members {
		switch {
		case !m.Started():
			return "a member at " + strings.Join(m.PeerURLs, ",") + " that has not started"
		case m.IsLearner:
			return "learner " + m.Name
		}
	}
	return ""
}

// memberHealth says whether a Machine's etcd member is a healthy voter.
func (s *scope) memberHealth(machine *clusterv1.Machine) (status metav1.ConditionStatus, message string) {
	w := &s.workload
	if w.membersErr != nil {
		return metav1.ConditionUnknown, "etcd's members can't be listed: " + w.membersErr.Error()
	}
	node := w.nodeOf(machine)
	if node == nil {
		return metav1.ConditionUnknown, "the Machine has no Node"
	}
	member := w.member(w.memberNameOf(machine))
	switch {
	case member == nil:
		return metav1.ConditionFalse, "etcd has no member of this Machine"
	case member.IsLearner:
		return metav1.ConditionFalse, "the etcd member is a learner"
	}
	if k3s.NodeReady(node) == metav1.ConditionUnknown {
		return metav1.ConditionUnknown, "the Node's state is unknown"
	}
	return k3s.Voter(node, s.now)
}

// healthyVoters counts the Machines whose members are healthy voters, without the one that is left out.
func (s *scope) healthyVoters(leftOut *clusterv1.Machine) int {
	n := 0
	for name, machine := range s.machines {
		if leftOut != nil && name == leftOut.Name {
			continue
		}
		if status, _ := s.memberHealth(machine); status == metav1.ConditionTrue {
			n++
		}
	}
	return n
}

// orphans names what exists in the workload cluster without a Machine: etcd members and servers' Nodes.
func (s *scope) orphans() []string {
	members, nodes := sets.New[string](), sets.New[string]()
	for _, machine := range s.machines {
		members.Insert(s.workload.memberNameOf(machine), machine.Annotations[controlplanev1.EtcdMemberAnnotation])
		if node := s.workload.nodeOf(machine); node != nil {
			nodes.Insert(node.Name)
		}
	}
	var orphans []string
	for _, m := range s.workload.members {
		if m.Started() && !members.Has(m.Name) {
			orphans = append(orphans, "etcd member "+m.Name)
		}
	}
	for name := range s.workload.nodes {
		if !nodes.Has(name) {
			orphans = append(orphans, "Node "+name)
		}
	}
	slices.Sort(orphans)
	return orphans
}

// quorum is the number of healthy voters that etcd needs with that many voters.
func quorum(voters int) int {
	return voters/2 + 1
}

package controllers

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
	"github.com/capk3s/capk3s/pkg/k3s"
)

// createStandIn makes the Node by way of which K3s removes an orphan. That no other Node has the member, or its
// address, which etcd gives to one member at a time, is believed only from an uncached read.
func (r *Reconciler) createStandIn(ctx context.Context, s *scope, member *k3s.Member) error {
	return r.withNodes(ctx, s.cluster, func(nodes typedcorev1.NodeInterface) error {
		list, err := nodes.List(ctx, metav1.ListOptions{})
		if err != nil {
			return fmt.Errorf("listing the Nodes of Cluster %s: %w", s.cluster.Name, err)
		}
		for i := range list.Items {
			if k3s.EtcdMemberName(&list.Items[i]) == member.Name || hasAddress(&list.Items[i], peerHost(member)) {
				return nil
			}
		}
		if _, err := nodes.Create(ctx, standInNode(member), metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("creating a Node that stands in for etcd member %s: %w", member.Name, err)
		}
		r.event(s, corev1.EventTypeNormal, "RemovingEtcdMember", "Delete", "etcd member %s has no Machine and no Node and is being removed", member.Name)
		return nil
	})
}

func hasAddress(node *corev1.Node, address string) bool {
	return slices.ContainsFunc(node.Status.Addresses, func(a corev1.NodeAddress) bool { return a.Address == address })
}

// standInNode is a Node that nothing runs on and that asks K3s to remove a member.
func standInNode(member *k3s.Member) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name:   "orphan-" + member.Name,
			Labels: map[string]string{k3s.EtcdLabel: "true", controlplanev1.StandInLabel: ""},
			Annotations: map[string]string{
				k3s.EtcdNodeNameAnnotation:    member.Name,
				k3s.EtcdNodeAddressAnnotation: peerHost(member),
				k3s.EtcdRemoveAnnotation:      "true",
			},
		},
		Spec: corev1.NodeSpec{
			Unschedulable: true,
			Taints:        []corev1.Taint{{Key: controlplanev1.StandInLabel, Effect: corev1.TaintEffectNoExecute}},
		},
	}
}

// deleteStandIn deletes the Node that stood in for an orphan. The server that the cache hangs on may be the orphan's.
func (r *Reconciler) deleteStandIn(ctx context.Context, s *scope, node *corev1.Node) error {
	err := r.withNodes(ctx, s.cluster, func(nodes typedcorev1.NodeInterface) error {
		return nodes.Delete(ctx, node.Name, metav1.DeleteOptions{})
	})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting Node %s: %w", node.Name, err)
	}
	return nil
}

package k3s

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// ControlPlaneLabel marks the Nodes of servers. K3s before 1.34 also set the label of "master".
	ControlPlaneLabel = "node-role.kubernetes.io/control-plane"

	// EtcdLabel marks the Nodes of servers with an embedded etcd.
	EtcdLabel = "node-role.kubernetes.io/etcd"

	// EtcdNodeNameAnnotation on a Node holds the name of its etcd member.
	EtcdNodeNameAnnotation = "etcd.k3s.cattle.io/node-name"

	// EtcdNodeAddressAnnotation on a Node holds the address of its etcd member.
	EtcdNodeAddressAnnotation = "etcd.k3s.cattle.io/node-address"

	// EtcdRemoveAnnotation with value "true" asks K3s to remove the Node's etcd member.
	EtcdRemoveAnnotation = "etcd.k3s.cattle.io/remove"

	// EtcdRemovedNodeNameAnnotation on a Node holds the name of the member that K3s removed.
	EtcdRemovedNodeNameAnnotation = "etcd.k3s.cattle.io/removed-node-name"

	// EtcdLease is the Lease in kube-system that the server holds which removes etcd members for all of them.
	EtcdLease = "k3s-etcd"

	// EtcdIsVoterCondition is the Node condition that the etcd leader's K3s keeps for each member.
	EtcdIsVoterCondition corev1.NodeConditionType = "EtcdIsVoter"
)

// voterHeartbeat is how old a heartbeat of EtcdIsVoter may be. K3s renews it every five minutes.
const voterHeartbeat = 7 * time.Minute

// IsControlPlaneNode says whether a Node is a server's, on every K3s version.
func IsControlPlaneNode(node *corev1.Node) bool {
	_, ok := node.Labels[ControlPlaneLabel]
	return ok
}

// EtcdMemberName is the name of the Node's etcd member, or empty when it has none.
func EtcdMemberName(node *corev1.Node) string {
	return node.Annotations[EtcdNodeNameAnnotation]
}

// NodeReady is the status of the Node's Ready condition; Unknown when it has none.
func NodeReady(node *corev1.Node) metav1.ConditionStatus {
	if c := nodeCondition(node, corev1.NodeReady); c != nil {
		return metav1.ConditionStatus(c.Status)
	}
	return metav1.ConditionUnknown
}

// Voter says whether the Node's etcd member is a healthy voter, as the etcd leader sees it, with K3s' message.
// Without a condition, or with one whose heartbeat has stopped, the answer is Unknown.
func Voter(node *corev1.Node, now time.Time) (status metav1.ConditionStatus, message string) {
	c := nodeCondition(node, EtcdIsVoterCondition)
	if c == nil {
		return metav1.ConditionUnknown, "the Node has no EtcdIsVoter condition yet"
	}
	if now.Sub(c.LastHeartbeatTime.Time) > voterHeartbeat {
		return metav1.ConditionUnknown, "the heartbeat of the Node's EtcdIsVoter condition stopped at " + c.LastHeartbeatTime.UTC().Format(time.RFC3339)
	}
	return metav1.ConditionStatus(c.Status), c.Message
}

func nodeCondition(node *corev1.Node, conditionType corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == conditionType {
			return &node.Status.Conditions[i]
		}
	}
	return nil
}

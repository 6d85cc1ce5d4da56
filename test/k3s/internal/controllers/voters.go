package controllers

import (
	"context"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capk3s/capk3s/test/k3s/internal/etcd"
)

// conditionVoter tells on a Node whether its etcd member votes.
const conditionVoter corev1.NodeConditionType = "EtcdIsVoter"

// voterHeartbeat is how often a condition is written that doesn't change.
const voterHeartbeat = 5 * time.Minute

// ReportVoters writes the condition on every etcd Node. Only the etcd leader's
// server may call it.
func (c *Controllers) ReportVoters(ctx context.Context, members []etcd.MemberStatus) {
	nodes, err := c.nodes.List(labels.SelectorFromSet(labels.Set{labelEtcd: "true"}))
	if err != nil {
		logrus.Errorf("Failed to list etcd nodes: %v", err)
		return
	}
	for _, node := range nodes {
		condition := voterCondition(node, members)
		old := findCondition(node, conditionVoter)
		now := metav1.Now()
		condition.LastHeartbeatTime, condition.LastTransitionTime = now, now
		if old != nil && old.Status == condition.Status && old.Reason == condition.Reason && old.Message == condition.Message {
			if now.Sub(old.LastHeartbeatTime.Time) < voterHeartbeat {
				continue
			}
			condition.LastTransitionTime = old.LastTransitionTime
		}
		if err := c.setConditions(ctx, node.Name, condition); err != nil {
			logrus.Errorf("Unable to set etcd status condition on node %s: %v", node.Name, err)
		}
	}
}

func voterCondition(node *corev1.Node, members []etcd.MemberStatus) corev1.NodeCondition {
	name, address, err := member(node)
	for _, status := range members {
		if err != nil || status.Name != name || status.Host != address {
			continue
		}
		switch {
		case status.Err != nil:
			return voter(corev1.ConditionFalse, "Unhealthy", status.Err.Error())
		case status.Learner:
			return voter(corev1.ConditionFalse, "MemberIsLearner", "Node has not been promoted to voting member of the etcd cluster")
		default:
			return voter(corev1.ConditionTrue, "MemberNotLearner", "Node is a voting member of the etcd cluster")
		}
	}
	return voter(corev1.ConditionFalse, "NotAMember", "Node is not a member of the etcd cluster")
}

func voter(status corev1.ConditionStatus, reason, message string) corev1.NodeCondition {
	return corev1.NodeCondition{Type: conditionVoter, Status: status, Reason: reason, Message: message}
}

func findCondition(node *corev1.Node, kind corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == kind {
			return &node.Status.Conditions[i]
		}
	}
	return nil
}

func (c *Controllers) setConditions(ctx context.Context, node string, conditions ...corev1.NodeCondition) error {
	return c.patch(ctx, node, types.StrategicMergePatchType,
		map[string]any{"status": map[string]any{"conditions": conditions}}, "status")
}

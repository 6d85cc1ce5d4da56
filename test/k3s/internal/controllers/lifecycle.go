package controllers

import (
	"context"
	"slices"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	nodespec "github.com/capk3s/capk3s/test/k3s/internal/node"
)

const (
	monitorPeriod = 5 * time.Second
	// gracePeriod is how long a Node may be silent.
	gracePeriod = 40 * time.Second
)

// heartbeat is the last renewal of a Node's lease, and when it was noticed.
type heartbeat struct {
	renewed  time.Time
	observed time.Time
}

// followNodes does what kube-controller-manager would do for Nodes: silent ones
// become Unknown, taints follow the conditions, leases go with their Node. And
// it plays the embedded cloud controller.
func (c *Controllers) followNodes(ctx context.Context) {
	beats := map[string]heartbeat{}
	ticker := time.NewTicker(monitorPeriod)
	defer ticker.Stop()
	for {
		if err := c.followOnce(ctx, beats); err != nil && ctx.Err() == nil {
			logrus.Errorf("Failed to monitor nodes: %v", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (c *Controllers) followOnce(ctx context.Context, beats map[string]heartbeat) error {
	ctx, cancel := context.WithTimeout(ctx, 2*monitorPeriod)
	defer cancel()
	nodes, err := c.nodes.List(labels.Everything())
	if err != nil {
		return err
	}
	leases, err := c.kube.CoordinationV1().Leases(corev1.NamespaceNodeLease).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return err
	}
	renewals := map[string]time.Time{}
	for _, lease := range leases.Items {
		if lease.Spec.RenewTime != nil {
			renewals[lease.Name] = lease.Spec.RenewTime.Time
		}
		if gone(lease.OwnerReferences, nodes) {
			if err := c.kube.CoordinationV1().Leases(lease.Namespace).Delete(ctx, lease.Name, metav1.DeleteOptions{}); err != nil {
				return err
			}
		}
	}
	for _, node := range nodes {
		beat, known := beats[node.Name]
		if !known || !renewals[node.Name].Equal(beat.renewed) {
			beat = heartbeat{renewed: renewals[node.Name], observed: time.Now()}
			beats[node.Name] = beat
		}
		if time.Since(beat.observed) > gracePeriod {
			if err := c.markUnknown(ctx, node); err != nil {
				return err
			}
		}
		if err := c.syncTaints(ctx, node.DeepCopy()); err != nil {
			return err
		}
	}
	return nil
}

// gone tells whether an object belongs to a Node that is no more; kube-apiserver
// alone collects no garbage.
func gone(owners []metav1.OwnerReference, nodes []*corev1.Node) bool {
	for _, owner := range owners {
		if owner.Kind == "Node" {
			return !slices.ContainsFunc(nodes, func(node *corev1.Node) bool { return node.UID == owner.UID })
		}
	}
	return false
}

func (c *Controllers) markUnknown(ctx context.Context, node *corev1.Node) error {
	now := metav1.Now()
	var unknown []corev1.NodeCondition
	for _, kind := range []corev1.NodeConditionType{
		corev1.NodeReady, corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure,
	} {
		condition := findCondition(node, kind)
		if condition == nil || condition.Status == corev1.ConditionUnknown {
			continue
		}
		changed := *condition
		changed.Status = corev1.ConditionUnknown
		changed.Reason, changed.Message = "NodeStatusUnknown", "Kubelet stopped posting node status."
		changed.LastTransitionTime = now
		unknown = append(unknown, changed)
	}
	if len(unknown) == 0 {
		return nil
	}
	logrus.Infof("Node %s is unresponsive: marking it Unknown", node.Name)
	return c.setConditions(ctx, node.Name, unknown...)
}

// syncTaints makes the taints fit the Ready condition, and drops the one that a
// cloud controller has to drop.
func (c *Controllers) syncTaints(ctx context.Context, node *corev1.Node) error {
	wanted := slices.DeleteFunc(slices.Clone(node.Spec.Taints), func(t corev1.Taint) bool {
		return t.Key == corev1.TaintNodeNotReady || t.Key == corev1.TaintNodeUnreachable ||
			(t.Key == nodespec.UninitializedTaint && !c.cfg.Server.Control.DisableCCM)
	})
	ready := findCondition(node, corev1.NodeReady)
	switch {
	case ready == nil || ready.Status == corev1.ConditionFalse:
		wanted = append(wanted, notFit(node, corev1.TaintNodeNotReady)...)
	case ready.Status == corev1.ConditionUnknown:
		wanted = append(wanted, notFit(node, corev1.TaintNodeUnreachable)...)
	}
	change := map[string]any{}
	if !sameTaints(node.Spec.Taints, wanted) {
		change["taints"] = wanted
	}
	if !c.cfg.Server.Control.DisableCCM && node.Spec.ProviderID == "" {
		change["providerID"] = "k3s://" + node.Name
	}
	if len(change) == 0 {
		return nil
	}
	return c.patch(ctx, node.Name, types.MergePatchType,
		map[string]any{"metadata": map[string]any{"resourceVersion": node.ResourceVersion}, "spec": change})
}

// notFit are the taints of a Node that isn't ready; those that are there keep
// their time.
func notFit(node *corev1.Node, key string) []corev1.Taint {
	var taints []corev1.Taint
	for _, effect := range []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute} {
		now := metav1.Now()
		taint := corev1.Taint{Key: key, Effect: effect, TimeAdded: &now}
		for _, old := range node.Spec.Taints {
			if old.MatchTaint(&taint) {
				taint = old
			}
		}
		taints = append(taints, taint)
	}
	return taints
}

func sameTaints(a, b []corev1.Taint) bool {
	contains := func(list []corev1.Taint) func(corev1.Taint) bool {
		return func(t corev1.Taint) bool {
			return !slices.ContainsFunc(list, func(other corev1.Taint) bool { return other.MatchTaint(&t) && other.Value == t.Value })
		}
	}
	return len(a) == len(b) && !slices.ContainsFunc(a, contains(b))
}

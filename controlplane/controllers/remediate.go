package controllers

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/collections"
	"sigs.k8s.io/cluster-api/util/conditions"

	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
)

// remediateMachine records the remediation, then deletes the unhealthy Machine. A reconcile that is cut short in
// between does both again.
func (r *Reconciler) remediateMachine(ctx context.Context, s *scope, rm *remediation) error {
	value, err := json.Marshal(rm.record)
	if err != nil {
		return fmt.Errorf("encoding the remediation of Machine %s: %w", rm.machine.Name, err)
	}
	err = r.annotate(ctx, s, func(annotations map[string]string) {
		annotations[controlplanev1.RemediationInProgressAnnotation] = string(value)
	})
	if err != nil {
		return err
	}
	if err := r.startDeletion(ctx, s, rm.machine); err != nil {
		return err
	}
	r.event(s, corev1.EventTypeNormal, "Remediating", "Delete", "Machine %s is unhealthy and is being deleted, to be replaced", rm.machine.Name)
	return nil
}

// endRemediation takes the record of a remediation off the control plane.
func (r *Reconciler) endRemediation(ctx context.Context, s *scope) error {
	return r.annotate(ctx, s, func(annotations map[string]string) {
		delete(annotations, controlplanev1.RemediationInProgressAnnotation)
	})
}

// reportRemediated sets on a Machine what its owner does about its health. Cluster API's MachineHealthCheck set the
// condition; it goes once the Machine is healthy again.
func reportRemediated(p *plan, machine *clusterv1.Machine) {
	if !machine.DeletionTimestamp.IsZero() {
		return
	}
	switch {
	case p.remediate != nil && p.remediate.machine.Name == machine.Name:
		conditions.Set(machine, metav1.Condition{
			Type: clusterv1.MachineOwnerRemediatedCondition, Status: metav1.ConditionFalse,
			Reason: controlplanev1.MachineDeletingReason, Message: "Machine is being deleted, to be replaced",
		})
	case p.refused != nil && p.refused.machine.Name == machine.Name:
		conditions.Set(machine, metav1.Condition{
			Type: clusterv1.MachineOwnerRemediatedCondition, Status: metav1.ConditionFalse,
			Reason: p.refused.reason, Message: p.refused.message,
		})
	case conditions.IsTrue(machine, clusterv1.MachineHealthCheckSucceededCondition) && conditions.IsFalse(machine, clusterv1.MachineOwnerRemediatedCondition):
		conditions.Delete(machine, clusterv1.MachineOwnerRemediatedCondition)
	}
}

// remediatingCondition says which unhealthy Machines are replaced, or wait for it, and why.
func remediatingCondition(s *scope, p *plan) metav1.Condition {
	c := metav1.Condition{Type: controlplanev1.RemediatingCondition, Status: metav1.ConditionFalse, Reason: clusterv1.NotRemediatingReason}
	var messages []string
	for _, name := range s.toRemediate().Names() {
		messages = append(messages, remediationMessage(p, s.machines[name]))
	}
	owed := remediationOwed(s.controlPlane)
	if owed != nil && !p.remediated && s.machines[owed.Machine] == nil {
		messages = append(messages, "Machine "+owed.Machine+" is to be replaced")
	}
	if len(messages) > 0 {
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, clusterv1.RemediatingReason, bullets(messages)
		return c
	}
	for _, name := range s.machines.Filter(collections.IsUnhealthy).Names() {
		messages = append(messages, "Machine "+name+" is unhealthy; its replacement is left to others")
	}
	if len(messages) > 0 {
		c.Message = bullets(messages)
	}
	return c
}

func remediationMessage(p *plan, machine *clusterv1.Machine) string {
	switch {
	case !machine.DeletionTimestamp.IsZero(), p.remediate != nil && p.remediate.machine.Name == machine.Name:
		return "Machine " + machine.Name + " is being deleted, to be replaced"
	case p.refused != nil && p.refused.machine.Name == machine.Name:
		return "Machine " + machine.Name + ": " + p.refused.message
	}
	return "Machine " + machine.Name + " waits for the others"
}

// reportLastRemediation keeps the last record, also when its Machines are gone.
func reportLastRemediation(s *scope) {
	last := lastRemediation(s)
	if last == nil {
		return
	}
	s.controlPlane.Status.LastRemediation = controlplanev1.LastRemediationStatus{
		Machine: last.Machine, Time: last.Timestamp, RetryCount: &last.RetryCount,
	}
}

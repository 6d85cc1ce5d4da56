package controllers

import (
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/feature"
	"sigs.k8s.io/cluster-api/util/labels/format"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
)

// defaultNodeDeletionTimeoutSeconds is what Cluster API's webhook puts into a Machine that has none. Without it here
// the Machines would differ from what is desired for ever, and be applied in every reconcile.
const defaultNodeDeletionTimeoutSeconds int32 = 10

// machineIdentity is the part of a Machine that never changes.
type machineIdentity struct {
	name          string
	version       string
	configRef     clusterv1.ContractVersionedObjectReference
	infraRef      clusterv1.ContractVersionedObjectReference
	failureDomain string
}

func newMachineIdentity(s *scope, c *creation, name string, infra *unstructured.Unstructured) machineIdentity {
	return machineIdentity{
		name:    name,
		version: s.controlPlane.Spec.Version,
		configRef: clusterv1.ContractVersionedObjectReference{
			APIGroup: bootstrapv1.GroupVersion.Group, Kind: "KThreesConfig", Name: name,
		},
		infraRef: clusterv1.ContractVersionedObjectReference{
			APIGroup: infra.GroupVersionKind().Group, Kind: infra.GetKind(), Name: name,
		},
		failureDomain: c.failureDomain,
	}
}

func identityOf(machine *clusterv1.Machine) machineIdentity {
	return machineIdentity{
		name:          machine.Name,
		version:       machine.Spec.Version,
		configRef:     machine.Spec.Bootstrap.ConfigRef,
		infraRef:      machine.Spec.InfrastructureRef,
		failureDomain: machine.Spec.FailureDomain,
	}
}

// desiredMachine is a server's Machine as it should be; existing is nil for a new one.
func desiredMachine(s *scope, existing *clusterv1.Machine, id machineIdentity) *clusterv1.Machine {
	template := s.controlPlane.Spec.MachineTemplate
	machine := &clusterv1.Machine{
		TypeMeta: metav1.TypeMeta{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine"},
		ObjectMeta: metav1.ObjectMeta{
			Name:            id.name,
			Namespace:       s.controlPlane.Namespace,
			Labels:          machineLabels(s),
			Annotations:     machineAnnotations(s, existing),
			OwnerReferences: []metav1.OwnerReference{ownerReference(s.controlPlane, true)},
		},
		Spec: clusterv1.MachineSpec{
			ClusterName:       s.cluster.Name,
			Version:           id.version,
			Bootstrap:         clusterv1.Bootstrap{ConfigRef: id.configRef},
			InfrastructureRef: id.infraRef,
			FailureDomain:     id.failureDomain,
			ReadinessGates:    readinessGates(s),
			Deletion: clusterv1.MachineDeletionSpec{
				NodeDrainTimeoutSeconds:        template.Spec.Deletion.NodeDrainTimeoutSeconds,
				NodeVolumeDetachTimeoutSeconds: template.Spec.Deletion.NodeVolumeDetachTimeoutSeconds,
				NodeDeletionTimeoutSeconds:     ptr.To(ptr.Deref(template.Spec.Deletion.NodeDeletionTimeoutSeconds, defaultNodeDeletionTimeoutSeconds)),
			},
		},
	}
	// Without the gate Cluster API's webhook refuses a Machine with taints.
	if feature.Gates.Enabled(feature.MachineTaintPropagation) {
		machine.Spec.Taints = template.Spec.Taints
	}
	if existing != nil {
		// Apply then fails instead of making a Machine that was deleted meanwhile anew.
		machine.UID = existing.UID
	}
	return machine
}

// machineLabels are the labels of a Machine and of what it refers to. The user's can't hide Cluster API's.
func machineLabels(s *scope) map[string]string {
	labels := copyMap(s.controlPlane.Spec.MachineTemplate.ObjectMeta.Labels)
	maps.Copy(labels, ownLabels(s))
	return labels
}

// ownLabels are the labels that Cluster API asks for. Objects are created with these alone: labels that are set
// at creation could not be taken away by a later apply.
func ownLabels(s *scope) map[string]string {
	return map[string]string{
		clusterv1.ClusterNameLabel:             s.cluster.Name,
		clusterv1.MachineControlPlaneLabel:     "",
		clusterv1.MachineControlPlaneNameLabel: format.MustFormatValue(s.controlPlane.Name),
	}
}

// machineAnnotations are the user's, the hook that holds back the deletion for etcd's sake, the remediation that a
// replacement is for, and the recorded etcd member. A hook that was taken off a deleting Machine stays off.
func machineAnnotations(s *scope, existing *clusterv1.Machine) map[string]string {
	annotations := copyMap(s.controlPlane.Spec.MachineTemplate.ObjectMeta.Annotations)
	if s.embeddedEtcd() {
		annotations[controlplanev1.PreTerminateHookAnnotation] = ""
	}
	if existing == nil {
		if owed := s.controlPlane.Annotations[controlplanev1.RemediationInProgressAnnotation]; owed != "" {
			annotations[controlplanev1.RemediationForAnnotation] = owed
		}
		return annotations
	}
	if record, ok := existing.Annotations[controlplanev1.RemediationForAnnotation]; ok {
		annotations[controlplanev1.RemediationForAnnotation] = record
	}
	if _, held := existing.Annotations[controlplanev1.PreTerminateHookAnnotation]; !held && !existing.DeletionTimestamp.IsZero() {
		delete(annotations, controlplanev1.PreTerminateHookAnnotation)
	}
	if member := s.workload.memberNameOf(existing); member != "" {
		annotations[controlplanev1.EtcdMemberAnnotation] = member
	}
	return annotations
}

// readinessGates are the control plane's own gate, so that a Machine with a sick etcd member isn't ready, and the
// user's.
func readinessGates(s *scope) []clusterv1.MachineReadinessGate {
	var gates []clusterv1.MachineReadinessGate
	if s.embeddedEtcd() {
		gates = append(gates, clusterv1.MachineReadinessGate{ConditionType: controlplanev1.MachineEtcdMemberHealthyCondition})
	}
	for _, gate := range s.controlPlane.Spec.MachineTemplate.Spec.ReadinessGates {
		if gate.ConditionType != controlplanev1.MachineEtcdMemberHealthyCondition {
			gates = append(gates, gate)
		}
	}
	return gates
}

// ownerReference refers to the control plane. Its kind is written out, since typed objects come without one.
func ownerReference(controlPlane *controlplanev1.KThreesControlPlane, controller bool) metav1.OwnerReference {
	ref := metav1.OwnerReference{
		APIVersion: controlplanev1.GroupVersion.String(),
		Kind:       "KThreesControlPlane",
		Name:       controlPlane.Name,
		UID:        controlPlane.UID,
	}
	if controller {
		ref.Controller, ref.BlockOwnerDeletion = ptr.To(true), ptr.To(true)
	}
	return ref
}

func copyMap(m map[string]string) map[string]string {
	c := maps.Clone(m)
	if c == nil {
		c = map[string]string{}
	}
	return c
}

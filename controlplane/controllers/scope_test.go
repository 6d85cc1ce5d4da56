package controllers

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/collections"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
	"github.com/capk3s/capk3s/pkg/certs"
	"github.com/capk3s/capk3s/pkg/k3s"
	"github.com/capk3s/capk3s/pkg/token"
)

const testVersion = "v1.36.3+k3s1"

var testTime = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

// newScope is a scope of a settled control plane with so many healthy servers, named m0, m1, ...
func newScope(servers int) *scope {
	s := &scope{
		now: testTime,
		cluster: &clusterv1.Cluster{
			ObjectMeta: metav1.ObjectMeta{Name: "c1", Namespace: "ns"},
			Spec: clusterv1.ClusterSpec{
				ControlPlaneEndpoint: clusterv1.APIEndpoint{Host: "10.0.0.1", Port: 6443},
				ControlPlaneRef: clusterv1.ContractVersionedObjectReference{
					APIGroup: controlplanev1.GroupVersion.Group, Kind: "KThreesControlPlane", Name: "cp",
				},
			},
			Status: clusterv1.ClusterStatus{
				Initialization: clusterv1.ClusterInitializationStatus{InfrastructureProvisioned: ptr.To(true)},
			},
		},
		controlPlane: &controlplanev1.KThreesControlPlane{
			ObjectMeta: metav1.ObjectMeta{Name: "cp", Namespace: "ns", UID: types.UID("cp-uid")},
			Spec: controlplanev1.KThreesControlPlaneSpec{
				Replicas: ptr.To(int32(servers)), //nolint:gosec // a handful
				Version:  testVersion,
				MachineTemplate: controlplanev1.KThreesControlPlaneMachineTemplate{
					Spec: controlplanev1.KThreesControlPlaneMachineTemplateSpec{
						InfrastructureRef: clusterv1.ContractVersionedObjectReference{
							APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "SandboxMachineTemplate", Name: "t1",
						},
					},
				},
			},
		},
		template:      &unstructured.Unstructured{},
		machines:      collections.New(),
		configs:       map[string]*bootstrapv1.KThreesConfig{},
		infraMachines: map[string]*unstructured.Unstructured{},
		certificates:  &certs.Set{},
		token:         &token.Token{Server: "secret"},
		workload:      workload{ready: servers > 0, nodes: map[string]*corev1.Node{}},
	}
	if servers == 0 {
		s.workload.nodesErr, s.workload.membersErr = errNoServerYet, errNoServerYet
		return s
	}
	s.initialized, s.evidence = true, "test"
	for i := range servers {
		addServer(s, fmt.Sprintf("m%d", i))
	}
	return s
}

// addServer adds a healthy server: Machine, KThreesConfig, Node and etcd member.
func addServer(s *scope, name string) *clusterv1.Machine {
	machine := &clusterv1.Machine{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "ns",
			CreationTimestamp: metav1.NewTime(testTime.Add(time.Duration(len(s.machines)) * time.Minute)),
			Annotations:       map[string]string{controlplanev1.PreTerminateHookAnnotation: ""},
		},
		Spec: clusterv1.MachineSpec{
			ClusterName: "c1", Version: testVersion, ProviderID: "sandbox:///" + name,
			Bootstrap: clusterv1.Bootstrap{DataSecretName: ptr.To(name)},
		},
		Status: clusterv1.MachineStatus{
			NodeRef:  clusterv1.MachineNodeReference{Name: name},
			NodeInfo: &corev1.NodeSystemInfo{KubeletVersion: testVersion},
		},
	}
	s.machines.Insert(machine)
	s.configs[name] = &bootstrapv1.KThreesConfig{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns"}}
	s.workload.nodes[name] = &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name:        name,
			Labels:      map[string]string{k3s.ControlPlaneLabel: "true"},
			Annotations: map[string]string{k3s.EtcdNodeNameAnnotation: memberOf(name)},
		},
		Spec: corev1.NodeSpec{ProviderID: "sandbox:///" + name},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionTrue},
			{Type: k3s.EtcdIsVoterCondition, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.NewTime(testTime)},
		}},
	}
	s.workload.members = append(s.workload.members, k3s.Member{Name: memberOf(name)})
	return machine
}

func memberOf(machine string) string {
	return machine + "-64d24546"
}

// markDeleting makes a Machine one that was drained and waits for the hook.
func markDeleting(s *scope, name string) *clusterv1.Machine {
	machine := s.machines[name]
	machine.DeletionTimestamp = ptr.To(metav1.NewTime(testTime))
	machine.Status.Conditions = []metav1.Condition{{
		Type: clusterv1.MachineDeletingCondition, Status: metav1.ConditionTrue,
		Reason: clusterv1.MachineDeletingWaitingForPreTerminateHookReason,
	}}
	return machine
}

// setNode changes the condition of a server's Node.
func setNode(s *scope, name string, conditionType corev1.NodeConditionType, status corev1.ConditionStatus) {
	for i := range s.workload.nodes[name].Status.Conditions {
		if s.workload.nodes[name].Status.Conditions[i].Type == conditionType {
			s.workload.nodes[name].Status.Conditions[i].Status = status
		}
	}
}

// removeMemberOf takes a server's member out of etcd.
func removeMemberOf(s *scope, name string) {
	var kept []k3s.Member
	for _, m := range s.workload.members {
		if m.Name != memberOf(name) {
			kept = append(kept, m)
		}
	}
	s.workload.members = kept
}

// setAnnotation sets an annotation of the control plane.
func setAnnotation(s *scope, key, value string) {
	metav1.SetMetaDataAnnotation(&s.controlPlane.ObjectMeta, key, value)
}

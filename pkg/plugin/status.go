package plugin

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
)

// status is a control plane at a glance.
type status struct {
	Namespace    string             `json:"namespace"`
	Cluster      string             `json:"cluster"`
	ControlPlane string             `json:"controlPlane"`
	Version      string             `json:"version"`
	Paused       bool               `json:"paused"`
	Deleting     bool               `json:"deleting"`
	Replicas     replicas           `json:"replicas"`
	Servers      []server           `json:"servers"`
	Etcd         etcd               `json:"etcd"`
	Custody      []kept             `json:"custody"`
	Conditions   []metav1.Condition `json:"conditions"`

	now time.Time
}

type replicas struct {
	Desired   *int32 `json:"desired,omitempty"`
	Current   *int32 `json:"current,omitempty"`
	Ready     *int32 `json:"ready,omitempty"`
	Available *int32 `json:"available,omitempty"`
	UpToDate  *int32 `json:"upToDate,omitempty"`
}

// server is a Machine of the control plane. The conditions are as they are written there, Unknown when they aren't.
type server struct {
	Machine string `json:"machine"`
	Node    string `json:"node,omitempty"`

	// Version is what the Node runs; empty as long as there is no Node.
	Version  string                 `json:"version,omitempty"`
	Ready    metav1.ConditionStatus `json:"ready"`
	UpToDate metav1.ConditionStatus `json:"upToDate"`
	Deleting bool                   `json:"deleting"`

	// Member and MemberHealthy are empty with an external datastore.
	Member        string                 `json:"etcdMember,omitempty"`
	MemberHealthy metav1.ConditionStatus `json:"etcdMemberHealthy,omitempty"`
	MemberMessage string                 `json:"etcdMemberMessage,omitempty"`
}

// etcd sums up the embedded etcd.
type etcd struct {
	External bool                   `json:"externalDatastore"`
	Healthy  metav1.ConditionStatus `json:"healthy"`
	Message  string                 `json:"message,omitempty"`

	// Members counts the servers with a member that is known by name.
	Members        int `json:"members"`
	HealthyMembers int `json:"healthyMembers"`
}

func (c *command) status() *cobra.Command {
	return c.about("status", "Show the servers, etcd, and what is in custody",
		"Show the servers with their etcd members, the Secrets with the token and the certificates (who controls them and when\nthey expire, never what they hold), and the conditions of the control plane. All of it is read from the management\ncluster.",
		func(ctx context.Context, s *subject) error {
			result, err := s.status(ctx, c.now())
			if err != nil {
				return err
			}
			return c.print(result)
		})
}

func (s *subject) status(ctx context.Context, now time.Time) (*status, error) {
	machines := &clusterv1.MachineList{}
	err := s.client.List(ctx, machines, client.InNamespace(s.cluster.Namespace), client.HasLabels{clusterv1.MachineControlPlaneLabel},
		client.MatchingLabels{clusterv1.ClusterNameLabel: s.cluster.Name})
	if err != nil {
		return nil, fmt.Errorf("listing the servers' Machines of Cluster %s: %w", s.cluster.Name, err)
	}
	custody, err := s.custody(ctx)
	if err != nil {
		return nil, err
	}
	external := s.controlPlane.Spec.KThreesConfigSpec.ServerConfig.HasDatastore()
	servers := serversOf(machines.Items, external)
	return &status{
		Namespace: s.cluster.Namespace, Cluster: s.cluster.Name,
		ControlPlane: s.controlPlane.Name, Version: s.controlPlane.Spec.Version,
		Paused:   annotations.IsPaused(s.cluster, s.controlPlane),
		Deleting: !s.controlPlane.DeletionTimestamp.IsZero(),
		Replicas: replicas{
			Desired: s.controlPlane.Spec.Replicas, Current: s.controlPlane.Status.Replicas, Ready: s.controlPlane.Status.ReadyReplicas,
			Available: s.controlPlane.Status.AvailableReplicas, UpToDate: s.controlPlane.Status.UpToDateReplicas,
		},
		Servers: servers, Etcd: etcdOf(s.controlPlane, servers, external), Custody: custody,
		Conditions: append([]metav1.Condition{}, s.controlPlane.Status.Conditions...),
		now:        now,
	}, nil
}

// serversOf lists the servers, the oldest first.
func serversOf(machines []clusterv1.Machine, external bool) []server {
	slices.SortFunc(machines, func(a, b clusterv1.Machine) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	servers := make([]server, 0, len(machines))
	for i := range machines {
		machine := &machines[i]
		s := server{
			Machine: machine.Name, Node: machine.Status.NodeRef.Name, Deleting: !machine.DeletionTimestamp.IsZero(),
			Ready:    statusOf(machine, clusterv1.ReadyCondition),
			UpToDate: statusOf(machine, controlplanev1.MachineUpToDateCondition),
		}
		if machine.Status.NodeInfo != nil {
			s.Version = machine.Status.NodeInfo.KubeletVersion
		}
		if !external {
			s.Member = machine.Annotations[controlplanev1.EtcdMemberAnnotation]
			s.MemberHealthy = statusOf(machine, controlplanev1.MachineEtcdMemberHealthyCondition)
			s.MemberMessage = conditions.GetMessage(machine, controlplanev1.MachineEtcdMemberHealthyCondition)
		}
		servers = append(servers, s)
	}
	return servers
}

func etcdOf(controlPlane *controlplanev1.KThreesControlPlane, servers []server, external bool) etcd {
	e := etcd{
		External: external,
		Healthy:  statusOf(controlPlane, controlplanev1.EtcdClusterHealthyCondition),
		Message:  conditions.GetMessage(controlPlane, controlplanev1.EtcdClusterHealthyCondition),
	}
	for _, s := range servers {
		if s.Member != "" {
			e.Members++
		}
		if s.MemberHealthy == metav1.ConditionTrue {
			e.HealthyMembers++
		}
	}
	return e
}

func statusOf(obj conditions.Getter, conditionType string) metav1.ConditionStatus {
	if condition := conditions.Get(obj, conditionType); condition != nil {
		return condition.Status
	}
	return metav1.ConditionUnknown
}

//go:build e2e

package e2e

import (
	"context"
	"fmt"

	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capk3s/capk3s/pkg/k3s"
	"github.com/capk3s/capk3s/test/chaos"
)

// awaitSpec waits until the cluster is what it is wanted to be: in the status, in the Machines and in the workload,
// with nothing on its way any more.
func (c *cluster) awaitSpec(want chaos.Cluster) {
	c.t.Helper()
	c.eventually(fmt.Sprintf("%d servers and %d workers of %s", want.Servers, want.Workers, want.Version), func(ctx context.Context) error {
		return c.checkSpec(ctx, want)
	})
}

func (c *cluster) checkSpec(ctx context.Context, want chaos.Cluster) error {
	for _, check := range []func(context.Context, chaos.Cluster) error{c.checkStatus, c.checkMachines, c.checkNodes} {
		if err := check(ctx, want); err != nil {
			return err
		}
	}
	return nil
}

// checkStatus compares the status of the control plane, which has to be that of the latest spec.
func (c *cluster) checkStatus(_ context.Context, want chaos.Cluster) error {
	cp := c.controlPlane()
	status := cp.Status
	if status.ObservedGeneration != cp.Generation {
		return fmt.Errorf("generation %d was observed, %d is there", status.ObservedGeneration, cp.Generation)
	}
	for name, count := range map[string]*int32{
		"replicas": status.Replicas, "ready": status.ReadyReplicas, "available": status.AvailableReplicas, "up-to-date": status.UpToDateReplicas,
	} {
		if int(ptr.Deref(count, 0)) != want.Servers {
			return fmt.Errorf("status has %d %s: %s", ptr.Deref(count, 0), name, summary(cp))
		}
	}
	if len(status.Versions) != 1 || status.Versions[0].Version != want.Version {
		return fmt.Errorf("status has versions %v", status.Versions)
	}
	return checkConditions(cp)
}

// checkMachines counts the Machines, those that are being deleted among them.
func (c *cluster) checkMachines(ctx context.Context, want chaos.Cluster) error {
	list := &clusterv1.MachineList{}
	if err := c.at.Client.List(ctx, list, client.InNamespace(c.namespace)); err != nil {
		return err
	}
	servers, workers := 0, 0
	for i := range list.Items {
		machine := &list.Items[i]
		switch {
		case machine.Spec.Version != want.Version:
			return fmt.Errorf("Machine %s has version %s", machine.Name, machine.Spec.Version)
		case isServer(machine):
			servers++
		default:
			workers++
		}
	}
	if servers != want.Servers || workers != want.Workers {
		return fmt.Errorf("there are %d Machines of servers and %d of workers", servers, workers)
	}
	return nil
}

func isServer(machine *clusterv1.Machine) bool {
	_, ok := machine.Labels[clusterv1.MachineControlPlaneLabel]
	return ok
}

// checkNodes looks at the workload: Nodes, their versions, and etcd's members.
func (c *cluster) checkNodes(ctx context.Context, want chaos.Cluster) error {
	if err := c.checkWorkload(ctx, want.Servers, want.Workers); err != nil {
		return err
	}
	nodes, err := c.workload.Nodes(ctx)
	if err != nil {
		return err
	}
	for i := range nodes {
		if running := nodes[i].Status.NodeInfo.KubeletVersion; running != want.Version {
			return fmt.Errorf("node %s runs %s (server: %t)", nodes[i].Name, running, k3s.IsControlPlaneNode(&nodes[i]))
		}
	}
	return nil
}

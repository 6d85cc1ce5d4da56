package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capk3s/capk3s/pkg/k3s"
	infrav1 "github.com/capk3s/capk3s/test/sandbox/api/v1beta1"
)

// follower tells what becomes of each machine: one line for every change.
type follower struct{ told map[string]string }

func (f *follower) look(ctx context.Context, d *demo) {
	machines, sandboxes := &clusterv1.MachineList{}, &infrav1.SandboxMachineList{}
	for _, list := range []client.ObjectList{machines, sandboxes} {
		if d.management.Client.List(ctx, list, client.InNamespace(name)) != nil {
			return // the next look will do
		}
	}
	var nodes []corev1.Node
	if d.workload != nil {
		nodes, _ = d.workload.Nodes(ctx) // none while the API is away
	}
	if f.told == nil {
		f.told = map[string]string{}
	}
	seen := map[string]bool{}
	for _, machine := range machines.Items {
		seen[machine.Name] = true
		text := state(&machine, find(sandboxes.Items, machine.Spec.InfrastructureRef.Name), findNode(nodes, machine.Spec.ProviderID))
		f.tell(d, machine.Name, role(&machine)+" "+text)
	}
	for gone := range f.told {
		if !seen[gone] {
			d.detail("%-24s is gone", gone)
			delete(f.told, gone)
		}
	}
}

func (f *follower) tell(d *demo, machine, text string) {
	if f.told[machine] != text {
		f.told[machine] = text
		d.detail("%-24s %s", machine, text)
	}
}

func role(machine *clusterv1.Machine) string {
	if _, ok := machine.Labels[clusterv1.MachineControlPlaneLabel]; ok {
		return "server"
	}
	return "worker"
}

// state says in a few words how far a machine is.
func state(machine *clusterv1.Machine, sandbox *infrav1.SandboxMachine, node *corev1.Node) string {
	if !machine.DeletionTimestamp.IsZero() {
		return leaveState(machine)
	}
	if sandbox == nil || len(sandbox.Status.Addresses) == 0 {
		return "waits for " + waitsFor(machine)
	}
	if node == nil {
		return bootState(sandbox)
	}
	text := "has joined, is not Ready yet"
	if k3s.NodeReady(node) == metav1.ConditionTrue {
		text = "is Ready"
	}
	if role(machine) != "server" {
		return text
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == "EtcdIsVoter" && condition.Status == corev1.ConditionTrue {
			return text + ", votes in etcd"
		}
	}
	return text + ", doesn't vote in etcd yet"
}

// leaveState says what a machine that is being deleted is waiting for.
func leaveState(machine *clusterv1.Machine) string {
	steps := map[string]string{
		clusterv1.MachineDeletingDrainingNodeReason:                     "is drained",
		clusterv1.MachineDeletingWaitingForPreTerminateHookReason:       "leaves etcd",
		clusterv1.MachineDeletingWaitingForInfrastructureDeletionReason: "is switched off",
		clusterv1.MachineDeletingDeletingNodeReason:                     "loses its Node",
	}
	deleting := meta.FindStatusCondition(machine.Status.Conditions, clusterv1.MachineDeletingCondition)
	if deleting == nil || steps[deleting.Reason] == "" {
		return "is being deleted"
	}
	return "is being deleted: " + steps[deleting.Reason]
}

func waitsFor(machine *clusterv1.Machine) string {
	if machine.Spec.Bootstrap.DataSecretName == nil {
		return "bootstrap data"
	}
	return "its infrastructure"
}

func bootState(sandbox *infrav1.SandboxMachine) string {
	address := sandbox.Status.Addresses[0].Address
	booted := meta.FindStatusCondition(sandbox.Status.Conditions, infrav1.BootstrapSucceededCondition)
	switch {
	case booted == nil || booted.Reason == "Bootstrapping":
		return fmt.Sprintf("boots at %s: cloud-init installs and starts K3s", address)
	case booted.Status == metav1.ConditionTrue:
		return fmt.Sprintf("has booted at %s", address)
	default:
		return fmt.Sprintf("failed to boot at %s: %s", address, booted.Message)
	}
}

func find(sandboxes []infrav1.SandboxMachine, name string) *infrav1.SandboxMachine {
	i := slices.IndexFunc(sandboxes, func(s infrav1.SandboxMachine) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	return &sandboxes[i]
}

func findNode(nodes []corev1.Node, providerID string) *corev1.Node {
	i := slices.IndexFunc(nodes, func(n corev1.Node) bool {
		return providerID != "" && strings.EqualFold(n.Spec.ProviderID, providerID)
	})
	if i < 0 {
		return nil
	}
	return &nodes[i]
}

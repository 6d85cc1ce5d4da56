//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
	"github.com/capk3s/capk3s/pkg/k3s"
	infrav1 "github.com/capk3s/capk3s/test/sandbox/api/v1beta1"
)

// requireInvariants waits until all invariants hold, and returns how many were checked. kept are the data of the
// Secrets that a cluster can't lose.
func (c *cluster) requireInvariants(kept map[string]map[string][]byte) int {
	c.t.Helper()
	invariants := []func(context.Context) error{
		func(ctx context.Context) error { return c.checkSecrets(ctx, kept) },
		c.checkMembers,
		c.checkNoOrphans,
	}
	for _, invariant := range invariants {
		c.eventually("an invariant", invariant)
	}
	return len(invariants)
}

// checkMembers compares etcd's members with the servers' Nodes, one for one.
func (c *cluster) checkMembers(ctx context.Context) error {
	nodes, members, err := c.nodesAndMembers(ctx)
	if err != nil {
		return err
	}
	var has, wants []string
	for i := range nodes {
		if k3s.IsControlPlaneNode(&nodes[i]) {
			wants = append(wants, k3s.EtcdMemberName(&nodes[i]))
		}
	}
	for _, member := range members {
		has = append(has, member.Name)
	}
	slices.Sort(has)
	slices.Sort(wants)
	if !slices.Equal(has, wants) {
		return fmt.Errorf("etcd has members %v, the Nodes say %v", has, wants)
	}
	return nil
}

// checkNoOrphans looks for what was left behind: the objects that the Machines name and one computer for each are all
// that there is.
func (c *cluster) checkNoOrphans(ctx context.Context) error {
	in := client.InNamespace(c.namespace)
	machines, configs, infra, secrets := &clusterv1.MachineList{}, &bootstrapv1.KThreesConfigList{}, &infrav1.SandboxMachineList{}, &corev1.SecretList{}
	for _, list := range []client.ObjectList{machines, configs, infra, secrets} {
		if err := c.at.Client.List(ctx, list, in); err != nil {
			return err
		}
	}
	computers, err := c.at.Host.List()
	if err != nil {
		return err
	}
	wants, has := sets.New[string](), sets.New[string]()
	for i := range machines.Items {
		spec := &machines.Items[i].Spec
		wants.Insert("KThreesConfig/"+spec.Bootstrap.ConfigRef.Name, "Secret/"+ptr.Deref(spec.Bootstrap.DataSecretName, ""),
			"SandboxMachine/"+spec.InfrastructureRef.Name, "computer/"+spec.InfrastructureRef.Name)
	}
	for i := range configs.Items {
		has.Insert("KThreesConfig/" + configs.Items[i].Name)
	}
	for i := range infra.Items {
		has.Insert("SandboxMachine/" + infra.Items[i].Name)
	}
	for i := range secrets.Items {
		if owner := metav1.GetControllerOf(&secrets.Items[i]); owner != nil && owner.Kind == "KThreesConfig" {
			has.Insert("Secret/" + secrets.Items[i].Name)
		}
	}
	for _, computer := range computers {
		if computer.Namespace() == c.namespace {
			has.Insert("computer/" + computer.Name())
		}
	}
	if orphans, missing := has.Difference(wants), wants.Difference(has); len(orphans)+len(missing) > 0 {
		return fmt.Errorf("left behind: %v; missing: %v", sets.List(orphans), sets.List(missing))
	}
	return nil
}

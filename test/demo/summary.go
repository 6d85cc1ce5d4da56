package main

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"
)

// summary shows the cluster as kubectl does, and where to look further.
func (d *demo) summary(ctx context.Context) error {
	d.step("this is the cluster")
	for _, kinds := range []string{"clusters", "kthreescontrolplanes", "machinedeployments", "machines"} {
		table, err := d.management.Kubectl(ctx, "get", kinds, "--namespace="+name)
		if err != nil {
			return err
		}
		d.text(strings.ToUpper(kinds[:1])+kinds[1:]+" (management cluster)", table)
	}
	nodes, err := d.management.Kubectl(ctx, "get", "nodes", "--kubeconfig="+d.workload.Kubeconfig)
	if err != nil {
		return err
	}
	d.text("Nodes (workload cluster)", nodes)
	members, err := d.workload.Members(ctx)
	if err != nil {
		return fmt.Errorf("listing etcd members: %w", err)
	}
	var table strings.Builder
	writer := tabwriter.NewWriter(&table, 0, 0, 3, ' ', 0)
	fmt.Fprintln(writer, "NAME\tROLE\tPEER URL")
	for _, member := range members {
		role := "voter"
		if member.IsLearner {
			role = "learner"
		}
		fmt.Fprintf(writer, "%s\t%s\t%s\n", member.Name, role, strings.Join(member.PeerURLs, ","))
	}
	if err := writer.Flush(); err != nil {
		return fmt.Errorf("printing etcd members: %w", err)
	}
	d.text("Etcd members (workload cluster)", table.String())
	d.text("Kubeconfigs, inside the world", fmt.Sprintf("management cluster: %s\nworkload cluster:   %s\n", d.management.Kubeconfig, d.workload.Kubeconfig))
	d.text("Logs of programs and machines", d.world.LogDir+"\n\n")
	return nil
}

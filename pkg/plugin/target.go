package plugin

import (
	"fmt"
	"strings"
)

const controlPlaneKind = "KThreesControlPlane"

// target is what a command names.
type target struct {
	name string

	// controlPlane says whether name is the control plane's; else it is the Cluster's.
	controlPlane bool
}

// parseTarget reads NAME or KIND/NAME, with the kind as kubectl takes and prints it.
func parseTarget(s string) (target, error) {
	kind, name, found := strings.Cut(s, "/")
	if !found {
		kind, name = "cluster", s
	}
	if name == "" || strings.Contains(name, "/") {
		return target{}, fmt.Errorf("%q is no name: use NAME or cluster/NAME of a Cluster, or kthreescontrolplane/NAME", s)
	}
	// kubectl -o name gives the group after a dot.
	resource, _, _ := strings.Cut(strings.ToLower(kind), ".")
	switch resource {
	case "cluster", "clusters":
		return target{name: name}, nil
	case "kthreescontrolplane", "kthreescontrolplanes", "k3cp":
		return target{name: name, controlPlane: true}, nil
	case "machinedeployment", "machinedeployments":
		return target{}, fmt.Errorf("%q isn't a control plane: for MachineDeployments use clusterctl alpha rollout", s)
	default:
		return target{}, fmt.Errorf("unknown kind %q in %q: use cluster/NAME or kthreescontrolplane/NAME", kind, s)
	}
}

package controllers

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
)

const (
	configKind      = "KThreesConfig"
	machineKind     = "Machine"
	machinePoolKind = "MachinePool"
)

// owner is what a config needs to know of the Machine or MachinePool that it was made for.
type owner struct {
	// Object is a *clusterv1.Machine or a *clusterv1.MachinePool.
	client.Object

	kind    string
	cluster string
	version string

	// dataSecretName is the name of the bootstrap data that the owner uses already; empty if it has none yet.
	dataSecretName string

	controlPlane bool

	// joined says whether the machine became a node, and so needs its bootstrap data no more.
	joined bool
}

// machine returns the owner if it is a Machine, else nil.
func (o *owner) machine() *clusterv1.Machine {
	machine, _ := o.Object.(*clusterv1.Machine)
	return machine
}

// findOwner returns the Machine or MachinePool that the config was made for, or nil as long as there is none. The
// reference's UID doesn't matter, since it is stale after a restore until Cluster API repairs it; what counts is that
// the owner, in turn, names the config.
func findOwner(ctx context.Context, reader client.Reader, config *bootstrapv1.KThreesConfig) (*owner, error) {
	for _, ref := range config.OwnerReferences {
		group, err := schema.ParseGroupVersion(ref.APIVersion)
		if err != nil || group.Group != clusterv1.GroupVersion.Group {
			continue
		}
		found, err := readOwner(ctx, reader, ref.Kind, client.ObjectKey{Namespace: config.Namespace, Name: ref.Name}, config.Name)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil || found != nil {
			return found, err
		}
	}
	return nil, nil
}

// readOwner returns nil for an object of another kind and for one that doesn't name the config.
func readOwner(ctx context.Context, reader client.Reader, kind string, key client.ObjectKey, config string) (*owner, error) {
	switch kind {
	case machineKind:
		machine := &clusterv1.Machine{}
		if err := reader.Get(ctx, key, machine); err != nil {
			return nil, fmt.Errorf("reading Machine %s: %w", key.Name, err)
		}
		return ownerFromMachine(machine, config), nil
	case machinePoolKind:
		pool := &clusterv1.MachinePool{}
		if err := reader.Get(ctx, key, pool); err != nil {
			return nil, fmt.Errorf("reading MachinePool %s: %w", key.Name, err)
		}
		return ownerFromMachinePool(pool, config), nil
	}
	return nil, nil
}

func ownerFromMachine(machine *clusterv1.Machine, config string) *owner {
	if configOf(machine.Spec.Bootstrap) != config {
		return nil
	}
	return &owner{
		Object:         machine,
		kind:           machineKind,
		cluster:        machine.Spec.ClusterName,
		version:        machine.Spec.Version,
		dataSecretName: stringOf(machine.Spec.Bootstrap.DataSecretName),
		controlPlane:   util.IsControlPlaneMachine(machine),
		joined:         machine.Status.NodeRef.IsDefined(),
	}
}

func ownerFromMachinePool(pool *clusterv1.MachinePool, config string) *owner {
	template := pool.Spec.Template.Spec
	if configOf(template.Bootstrap) != config {
		return nil
	}
	return &owner{
		Object:         pool,
		kind:           machinePoolKind,
		cluster:        pool.Spec.ClusterName,
		version:        template.Version,
		dataSecretName: stringOf(template.Bootstrap.DataSecretName),
	}
}

// configOf returns the name of the KThreesConfig that a machine is made from; empty if it is made from anything else.
func configOf(bootstrap clusterv1.Bootstrap) string {
	ref := bootstrap.ConfigRef
	if ref.APIGroup != bootstrapv1.GroupVersion.Group || ref.Kind != configKind {
		return ""
	}
	return ref.Name
}

func stringOf(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

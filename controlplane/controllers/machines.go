package controllers

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/external"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
)

const (
	// fieldManager owns the fields of Machines that the control plane sets.
	fieldManager = "capi-kthreescontrolplane"

	// metadataManager owns the labels and annotations of KThreesConfigs and infrastructure machines.
	metadataManager = "capi-kthreescontrolplane-metadata"
)

// createMachine makes a server's infrastructure machine, KThreesConfig and Machine, all of one name.
func (r *Reconciler) createMachine(ctx context.Context, s *scope, c *creation) error {
	if c.first {
		// A second first server would found a second cluster: that there is none is believed only from the API server.
		if machines, err := listMachines(ctx, r.APIReader, s.cluster); err != nil || len(machines) > 0 {
			return err
		}
	}
	name, err := machineName(s.cluster, s.controlPlane)
	if err != nil {
		return err
	}
	err = r.createMachineObjects(ctx, s, c, name)
	if err != nil {
		r.event(s, corev1.EventTypeWarning, "FailedScaleUp", "Create", "Machine %s could not be created: %v", name, err)
		return fmt.Errorf("creating Machine %s: %w", name, err)
	}
	r.event(s, corev1.EventTypeNormal, "ScalingUp", "Create", "Machine %s is created", name)
	return nil
}

// createMachineObjects leaves what it made when it fails half way: the answer to a write may be lost although the
// write was done. deleteStrays finds out.
func (r *Reconciler) createMachineObjects(ctx context.Context, s *scope, c *creation, name string) error {
	infra, err := r.createInfraMachine(ctx, s, name)
	if err != nil {
		return err
	}
	config := desiredConfig(s, c, name)
	if err := r.Client.Create(ctx, config, client.FieldOwner(fieldManager)); err != nil {
		return fmt.Errorf("creating KThreesConfig %s: %w", name, err)
	}
	config.SetGroupVersionKind(bootstrapv1.GroupVersion.WithKind("KThreesConfig"))
	if err := errors.Join(r.applyMetadata(ctx, s, config), r.applyMetadata(ctx, s, infra)); err != nil {
		return err
	}
	machine := desiredMachine(s, nil, newMachineIdentity(s, c, name, infra))
	if err := r.applyMachine(ctx, machine); err != nil {
		return err
	}
	r.waitForCache(s, machine.ResourceVersion)
	return nil
}

func (r *Reconciler) createInfraMachine(ctx context.Context, s *scope, name string) (*unstructured.Unstructured, error) {
	owner := ownerReference(s.controlPlane, false)
	infra, err := external.GenerateTemplate(&external.GenerateTemplateInput{
		Template: s.template.DeepCopy(),
		TemplateRef: &corev1.ObjectReference{
			APIVersion: s.template.GetAPIVersion(), Kind: s.template.GetKind(),
			Namespace: s.template.GetNamespace(), Name: s.template.GetName(),
		},
		Namespace:   s.controlPlane.Namespace,
		Name:        name,
		ClusterName: s.cluster.Name,
		OwnerRef:    &owner,
		Labels:      ownLabels(s),
	})
	if err != nil {
		return nil, fmt.Errorf("making an infrastructure machine of %s %s: %w", s.template.GetKind(), s.template.GetName(), err)
	}
	if err := r.Client.Create(ctx, infra, client.FieldOwner(fieldManager)); err != nil {
		return nil, fmt.Errorf("creating %s %s: %w", infra.GetKind(), name, err)
	}
	return infra, nil
}

// applyMachine creates or updates a Machine by server-side apply; on return it is what the server holds.
func (r *Reconciler) applyMachine(ctx context.Context, machine *clusterv1.Machine) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(machine)
	if err != nil {
		return fmt.Errorf("converting Machine %s: %w", machine.Name, err)
	}
	delete(content, "status")
	u := &unstructured.Unstructured{Object: content}
	unstructured.RemoveNestedField(u.Object, "metadata", "creationTimestamp")
	if err := r.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(fieldManager), client.ForceOwnership); err != nil {
		return fmt.Errorf("applying Machine %s: %w", machine.Name, err)
	}
	machine.ResourceVersion = u.GetResourceVersion()
	return nil
}

// desiredConfig is the KThreesConfig of a new server. The first server's order is given later, once it is
// recorded that the cluster is founded.
func desiredConfig(s *scope, c *creation, name string) *bootstrapv1.KThreesConfig {
	var annotations map[string]string
	if !c.first {
		annotations = map[string]string{bootstrapv1.OrderAnnotation: bootstrapv1.OrderJoin}
	}
	return &bootstrapv1.KThreesConfig{
		ObjectMeta: metav1.ObjectMeta{
			Name:            name,
			Namespace:       s.controlPlane.Namespace,
			Labels:          ownLabels(s),
			Annotations:     annotations,
			OwnerReferences: []metav1.OwnerReference{ownerReference(s.controlPlane, false)},
		},
		Spec: *s.controlPlane.Spec.KThreesConfigSpec.DeepCopy(),
	}
}

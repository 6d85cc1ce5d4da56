package plugin

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// change is what a rollout command did.
type change struct {
	Action string `json:"action"`

	// Kind, Namespace and Name are those of the object that was written to.
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`

	// Field is what was set or removed.
	Field string `json:"field"`
	Value string `json:"value,omitempty"`

	// Note says what follows.
	Note string `json:"note"`
}

func (c *change) text(w io.Writer) error {
	did := "set to " + c.Value
	if c.Value == "" {
		did = "removed"
	}
	_, err := fmt.Fprintf(w, "%s %s/%s: %s %s.\n%s\n", c.Kind, c.Namespace, c.Name, c.Field, did, c.Note)
	return err
}

func (c *command) restart() *cobra.Command {
	return c.about("restart", "Replace every server, one at a time",
		"Replace every server, one at a time: spec.rollout.after becomes now. For a Cluster with a topology it is set there\n(spec.topology.controlPlane.rollout.after).",
		func(ctx context.Context, s *subject) error { return c.report(s.restart(ctx, c.now())) })
}

func (c *command) pause() *cobra.Command {
	return c.about("pause", "Stop working on a control plane",
		"Stop working on a control plane: it gets the annotation "+clusterv1.PausedAnnotation+". Until it is resumed, servers are neither\nreplaced nor scaled, and no lost Secret is put back. The servers themselves run on.",
		func(ctx context.Context, s *subject) error { return c.report(s.pause(ctx)) })
}

func (c *command) resume() *cobra.Command {
	return c.about("resume", "Work on a paused control plane again",
		"Work on a paused control plane again: the annotation "+clusterv1.PausedAnnotation+" is removed.",
		func(ctx context.Context, s *subject) error { return c.report(s.resume(ctx)) })
}

func (c *command) report(result *change, err error) error {
	if err != nil {
		return err
	}
	return c.print(result)
}

func (s *subject) restart(ctx context.Context, now time.Time) (*change, error) {
	if err := s.mayRestart(now); err != nil {
		return nil, err
	}
	after := metav1.NewTime(now.UTC().Truncate(time.Second))
	result := &change{
		Action: "restart", Kind: controlPlaneKind, Field: "spec.rollout.after", Value: after.Format(time.RFC3339),
		Note: "Every server that was made before is replaced, one at a time. clusterctl k3s status shows how far it is.",
	}
	// The topology controller would take back what it didn't write itself.
	if s.cluster.Spec.Topology.IsDefined() {
		result.Kind, result.Field = "Cluster", "spec.topology.controlPlane.rollout.after"
		return result, patch(ctx, s.client, s.cluster, result, func() { s.cluster.Spec.Topology.ControlPlane.Rollout.After = after })
	}
	return result, patch(ctx, s.client, s.controlPlane, result, func() { s.controlPlane.Spec.Rollout.After = after })
}

// mayRestart refuses what would have no effect, or take a planned rollout away.
func (s *subject) mayRestart(now time.Time) error {
	name := client.ObjectKeyFromObject(s.controlPlane)
	after := s.controlPlane.Spec.Rollout.After
	if s.cluster.Spec.Topology.IsDefined() && !s.cluster.Spec.Topology.ControlPlane.Rollout.After.IsZero() {
		after = s.cluster.Spec.Topology.ControlPlane.Rollout.After
	}
	switch {
	case !s.controlPlane.DeletionTimestamp.IsZero():
		return fmt.Errorf("%s %s is being deleted: its servers aren't replaced any more", controlPlaneKind, name)
	case s.clusterPaused():
		return fmt.Errorf("nothing would be replaced, because Cluster %s is paused: set its spec.paused to false first", s.cluster.Name)
	case annotations.HasPaused(s.controlPlane):
		return fmt.Errorf("%s %s is paused, nothing would be replaced: run clusterctl k3s rollout resume first", controlPlaneKind, name)
	case after.After(now):
		return fmt.Errorf("a rollout of %s %s is planned for %s already: remove it (rollout.after) first", controlPlaneKind, name, after.UTC().Format(time.RFC3339))
	}
	return nil
}

func (s *subject) pause(ctx context.Context) (*change, error) {
	if annotations.HasPaused(s.controlPlane) {
		return nil, fmt.Errorf("%s %s is paused already", controlPlaneKind, client.ObjectKeyFromObject(s.controlPlane))
	}
	result := &change{
		Action: "pause", Kind: controlPlaneKind, Field: "annotation " + clusterv1.PausedAnnotation, Value: "true",
		Note: "Servers are neither replaced nor scaled, and no lost Secret is put back, until clusterctl k3s rollout resume. The servers themselves run on.",
	}
	return result, patch(ctx, s.client, s.controlPlane, result, func() {
		metav1.SetMetaDataAnnotation(&s.controlPlane.ObjectMeta, clusterv1.PausedAnnotation, result.Value)
	})
}

func (s *subject) resume(ctx context.Context) (*change, error) {
	if !annotations.HasPaused(s.controlPlane) {
		err := fmt.Errorf("%s %s isn't paused", controlPlaneKind, client.ObjectKeyFromObject(s.controlPlane))
		if s.clusterPaused() {
			err = fmt.Errorf("%w itself, but its Cluster %s is: set spec.paused of the Cluster to false", err, s.cluster.Name)
		}
		return nil, err
	}
	result := &change{
		Action: "resume", Kind: controlPlaneKind, Field: "annotation " + clusterv1.PausedAnnotation,
		Note: "The control plane is worked on again.",
	}
	if s.clusterPaused() {
		result.Note = fmt.Sprintf("Nothing happens yet: Cluster %s is paused, too. Set its spec.paused to false.", s.cluster.Name)
	}
	return result, patch(ctx, s.client, s.controlPlane, result, func() { delete(s.controlPlane.Annotations, clusterv1.PausedAnnotation) })
}

func (s *subject) clusterPaused() bool { return ptr.Deref(s.cluster.Spec.Paused, false) }

// patch writes what mutate changes in obj, and names the object in the result.
func patch(ctx context.Context, c client.Client, obj client.Object, result *change, mutate func()) error {
	result.Namespace, result.Name = obj.GetNamespace(), obj.GetName()
	before, ok := obj.DeepCopyObject().(client.Object)
	if !ok {
		return fmt.Errorf("%T is no object", obj)
	}
	mutate()
	if err := c.Patch(ctx, obj, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("changing %s of %s %s: %w", result.Field, result.Kind, client.ObjectKeyFromObject(obj), err)
	}
	return nil
}

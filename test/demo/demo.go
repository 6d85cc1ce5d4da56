package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
	"github.com/capk3s/capk3s/test/world"
)

//go:embed cluster.yaml
var manifests []byte

// name of the Cluster, its control plane and their namespace.
const name = "demo"

const workers = 2

// patience is how long any one step may take.
const patience = 15 * time.Minute

// demo is one run of the demo.
type demo struct {
	*report
	world *world.World
	keep  bool

	management *world.Management
	workload   *world.Workload
	machines   follower
	// digest of the token's value, as first seen.
	digest string
}

func (d *demo) run(ctx context.Context) error {
	d.step("setting up a management cluster")
	var err error
	d.management, err = d.world.StartManagement(ctx, world.ManagementOptions{
		Progress: func(what string) { d.detail("%s", what) },
	})
	if err != nil {
		return err
	}
	defer d.management.Stop()
	if err := d.found(ctx); err != nil {
		return err
	}
	for _, servers := range []int32{1, 3} {
		if err := d.scale(ctx, servers); err != nil {
			return err
		}
	}
	if err := d.summary(ctx); err != nil {
		return err
	}
	if d.keep {
		return d.leave(ctx)
	}
	return d.delete(ctx)
}

// found applies the manifests and waits for the whole cluster.
func (d *demo) found(ctx context.Context) error {
	d.step("applying test/demo/cluster.yaml: Cluster %s with 3 servers and %d workers", name, workers)
	if err := d.management.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
		return fmt.Errorf("creating the namespace: %w", err)
	}
	if err := d.management.Apply(ctx, manifests); err != nil {
		return err
	}
	if err := d.wait(ctx, "the cluster", goal{servers: 3}.reached); err != nil {
		return err
	}
	return d.checkToken(ctx)
}

func (d *demo) scale(ctx context.Context, servers int32) error {
	d.step("scaling the control plane to %d", servers)
	controlPlane := &controlplanev1.KThreesControlPlane{}
	if err := d.get(ctx, controlPlane); err != nil {
		return err
	}
	before := controlPlane.DeepCopy()
	controlPlane.Spec.Replicas = &servers
	if err := d.management.Client.Patch(ctx, controlPlane, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("scaling the control plane: %w", err)
	}
	if err := d.wait(ctx, "the control plane", goal{servers: servers}.reached); err != nil {
		return err
	}
	return d.checkToken(ctx)
}

// delete deletes the Cluster and checks that nothing of it is left.
func (d *demo) delete(ctx context.Context) error {
	d.step("deleting Cluster %s", name)
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: name}}
	if err := d.management.Client.Delete(ctx, cluster); err != nil {
		return fmt.Errorf("deleting the cluster: %w", err)
	}
	d.workload.Close()
	if err := d.wait(ctx, "the end of the cluster", gone); err != nil {
		return err
	}
	d.step("done: nothing of the cluster is left")
	return nil
}

// gone is reached when no object and no machine of the cluster is left.
func gone(ctx context.Context, d *demo) (string, error) {
	objects, err := d.management.Leftovers(ctx, name)
	if err != nil {
		return "", err
	}
	machines, err := d.management.Host.List()
	if err != nil {
		return "", err
	}
	if len(objects)+len(machines) > 0 {
		return fmt.Sprintf("%d objects and %d machines are left", len(objects), len(machines)), nil
	}
	return "", nil
}

// leave lets the world go on without the terminal.
func (d *demo) leave(ctx context.Context) error {
	d.step("left running: \"make demo-shell\" opens a shell in its world, \"make demo-down\" ends it")
	if err := d.world.Detach(); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// wait follows the machines until missing returns an empty text, which
// otherwise says what is missing.
func (d *demo) wait(ctx context.Context, what string, missing func(context.Context, *demo) (string, error)) error {
	d.detail("waiting for %s", what)
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		d.machines.look(ctx, d)
		text, err := missing(ctx, d)
		if err == nil && text == "" {
			return nil
		}
		if err != nil {
			text = err.Error()
		}
		if d.silent() > 15*time.Second {
			d.detail("still waiting for %s: %s", what, text)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %s: %w", what, text, ctx.Err())
		case <-time.After(time.Second):
		}
	}
}

// get reads the object that has the demo's name.
func (d *demo) get(ctx context.Context, obj client.Object) error {
	if err := d.management.Client.Get(ctx, client.ObjectKey{Namespace: name, Name: name}, obj); err != nil {
		return fmt.Errorf("reading %T %s: %w", obj, name, err)
	}
	return nil
}

// open opens the workload cluster once it can be.
func (d *demo) open(ctx context.Context) error {
	if d.workload != nil {
		return nil
	}
	workload, err := d.management.Workload(ctx, name, name)
	if apierrors.IsNotFound(err) {
		return errors.New("there is no kubeconfig yet")
	}
	if err != nil {
		return err
	}
	d.workload = workload
	return nil
}

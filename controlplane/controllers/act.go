package controllers

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	capicontrollerutil "sigs.k8s.io/cluster-api/util/controller"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
	"github.com/capk3s/capk3s/pkg/k3s"
)

// act writes what was planned. What fails doesn't keep the rest from being written.
func (r *Reconciler) act(ctx context.Context, s *scope, p *plan) error {
	var errs []error
	for _, machine := range p.release {
		errs = append(errs, r.releaseMachine(ctx, s, machine))
	}
	if p.found != nil {
		errs = append(errs, r.orderFounding(ctx, s, p.found))
	}
	if p.remove != nil {
		errs = append(errs, r.removeMember(ctx, s, p.remove))
	}
	if p.standIn != nil {
		errs = append(errs, r.createStandIn(ctx, s, p.standIn))
	}
	if p.dismiss != nil {
		errs = append(errs, r.deleteStandIn(ctx, s, p.dismiss))
	}
	if p.remediate != nil {
		errs = append(errs, r.remediateMachine(ctx, s, p.remediate))
	}
	if p.remediated {
		errs = append(errs, r.endRemediation(ctx, s))
	}
	if p.create != nil {
		errs = append(errs, r.createMachine(ctx, s, p.create))
	}
	if p.delete != nil {
		errs = append(errs, r.deleteMachine(ctx, s, p.delete))
	}
	return errors.Join(errs...)
}

// releaseMachine takes our hook off a deleting Machine, so that its infrastructure goes.
func (r *Reconciler) releaseMachine(ctx context.Context, s *scope, machine *clusterv1.Machine) error {
	if _, held := machine.Annotations[controlplanev1.PreTerminateHookAnnotation]; !held {
		return nil
	}
	before := machine.DeepCopy()
	delete(machine.Annotations, controlplanev1.PreTerminateHookAnnotation)
	if err := r.Client.Patch(ctx, machine, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("releasing the deleting Machine %s: %w", machine.Name, err)
	}
	r.event(s, corev1.EventTypeNormal, "ServerReleased", "Delete", "Machine %s no longer waits for its etcd member", machine.Name)
	return nil
}

// orderFounding records that the cluster is founded, then gives the order. From the order on the bootstrap
// provider may use the token and the CAs.
func (r *Reconciler) orderFounding(ctx context.Context, s *scope, machine *clusterv1.Machine) error {
	recorded := recordedEvidence(s.controlPlane)
	if recorded == nil || recorded.Machine != machine.Name {
		var err error
		if recorded, err = r.recordEvidence(ctx, s, machine.Name); err != nil {
			return err
		}
	}
	config := s.configs[machine.Name].DeepCopy()
	patch := client.MergeFrom(config.DeepCopy())
	if config.Annotations == nil {
		config.Annotations = map[string]string{}
	}
	config.Annotations[bootstrapv1.OrderAnnotation] = bootstrapv1.OrderInit
	if recorded.Anew {
		config.Annotations[bootstrapv1.OrderAnnotation] = bootstrapv1.OrderInitAnew
	}
	if err := r.Client.Patch(ctx, config, patch); err != nil {
		return fmt.Errorf("ordering KThreesConfig %s to found the cluster: %w", config.Name, err)
	}
	r.event(s, corev1.EventTypeNormal, "Founding", "Create", "Machine %s founds the cluster", machine.Name)
	return nil
}

// removeMember asks K3s to remove an etcd member: by an annotation on its Node. K3s never answers a second request,
// so that one from an outdated view of the Node has to fail.
func (r *Reconciler) removeMember(ctx context.Context, s *scope, rm *removal) error {
	workloadClient, err := r.ClusterCache.GetClient(ctx, client.ObjectKeyFromObject(s.cluster))
	if err != nil {
		return fmt.Errorf("connecting to Cluster %s: %w", s.cluster.Name, err)
	}
	node := rm.node.DeepCopy()
	patch := client.MergeFromWithOptions(rm.node, client.MergeFromWithOptimisticLock{})
	node.Annotations[k3s.EtcdRemoveAnnotation] = "true"
	if err := workloadClient.Patch(ctx, node, patch); err != nil {
		return fmt.Errorf("asking K3s to remove etcd member %s of Node %s: %w", rm.member, node.Name, err)
	}
	r.event(s, corev1.EventTypeNormal, "RemovingEtcdMember", "Delete", "etcd member %s of Machine %s is being removed", rm.member, rm.machine.Name)
	return nil
}

// deleteMachine starts the deletion of a Machine; the hook holds its infrastructure until etcd is settled.
func (r *Reconciler) deleteMachine(ctx context.Context, s *scope, machine *clusterv1.Machine) error {
	if err := r.startDeletion(ctx, s, machine); err != nil {
		return err
	}
	r.event(s, corev1.EventTypeNormal, "ScalingDown", "Delete", "Machine %s is being deleted", machine.Name)
	return nil
}

// startDeletion deletes a Machine, which then waits for its finalizers.
func (r *Reconciler) startDeletion(ctx context.Context, s *scope, machine *clusterv1.Machine) error {
	deleted, err := r.machineDeleter.Delete(ctx, machine)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting Machine %s: %w", machine.Name, err)
	}
	if deleted != nil {
		r.waitForCache(s, deleted.GetResourceVersion())
	}
	return nil
}

// annotate changes the annotations of the control plane. A copy is patched, so that the patch at the end of the
// reconcile doesn't write them again.
func (r *Reconciler) annotate(ctx context.Context, s *scope, change func(map[string]string)) error {
	after := s.controlPlane.DeepCopy()
	after.Annotations = copyMap(after.Annotations)
	change(after.Annotations)
	patch := client.MergeFromWithOptions(s.controlPlane, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Patch(ctx, after, patch); err != nil {
		return fmt.Errorf("annotating KThreesControlPlane %s: %w", s.controlPlane.Name, err)
	}
	return nil
}

// waitForCache puts the next reconcile off until the cache holds what was written, so that no Machine is created
// or deleted twice.
func (r *Reconciler) waitForCache(s *scope, machineResourceVersion string) {
	r.controller.DeferNextReconcileUntilCacheUpToDate(s.controlPlane,
		capicontrollerutil.StructuredObject(clusterv1.GroupVersion, "Machine"), machineResourceVersion)
}

// event tells a human about a step.
func (r *Reconciler) event(s *scope, eventType, reason, action, format string, args ...any) {
	r.Recorder.Eventf(s.controlPlane, nil, eventType, reason, action, format, args...)
}

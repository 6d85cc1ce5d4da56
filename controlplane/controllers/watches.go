package controllers

import (
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	capicontrollerutil "sigs.k8s.io/cluster-api/util/controller"
	"sigs.k8s.io/cluster-api/util/predicates"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
	"github.com/capk3s/capk3s/pkg/k3s"
)

// controllerName names the controller in logs, metrics and watches.
const controllerName = "kthreescontrolplane"

var machineResource = schema.GroupResource{Group: clusterv1.GroupVersion.Group, Resource: "machines"}

// build wires what the controller depends on: the objects it owns, its Cluster, every labelled Secret, and the
// connection to the workload cluster. The Nodes are watched as soon as there is a connection.
func (r *Reconciler) build(ctx context.Context, mgr ctrl.Manager, options controller.Options) (capicontrollerutil.Controller, error) {
	log := ctrl.LoggerFrom(ctx).WithValues("controller", controllerName)
	toControlPlane := handler.EnqueueRequestsFromMapFunc(r.labelledToControlPlane)
	return capicontrollerutil.NewControllerManagedBy(mgr, log).
		Named(controllerName).
		For(&controlplanev1.KThreesControlPlane{}).
		Watches(&clusterv1.Machine{}, toControlPlane).
		Watches(&bootstrapv1.KThreesConfig{}, toControlPlane, onlyDeletions).
		Watches(&corev1.Secret{}, toControlPlane).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(r.clusterToControlPlane)).
		WatchesRawSource(r.ClusterCache.GetClusterSource(controllerName, r.clusterToControlPlane)).
		WithOptions(options).
		WithEventFilter(predicates.ResourceHasFilterLabel(mgr.GetScheme(), log, r.WatchFilterValue)).
		Build(ctx, r)
}

// onlyDeletions lets a lost KThreesConfig be seen; its other changes are the bootstrap provider's.
var onlyDeletions = predicate.Funcs{
	CreateFunc:  func(event.CreateEvent) bool { return false },
	UpdateFunc:  func(event.UpdateEvent) bool { return false },
	GenericFunc: func(event.GenericEvent) bool { return false },
}

// clusterToControlPlane maps a Cluster to its control plane.
func (r *Reconciler) clusterToControlPlane(_ context.Context, o client.Object) []ctrl.Request {
	cluster, ok := o.(*clusterv1.Cluster)
	if !ok {
		return nil
	}
	ref := cluster.Spec.ControlPlaneRef
	if ref.APIGroup != controlplanev1.GroupVersion.Group || ref.Kind != "KThreesControlPlane" {
		return nil
	}
	return []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: cluster.Namespace, Name: ref.Name}}}
}

// labelledToControlPlane maps an object with the label of a cluster's name to the Cluster's control plane. Workers
// are mapped too: their end lets the control plane be deleted.
func (r *Reconciler) labelledToControlPlane(ctx context.Context, o client.Object) []ctrl.Request {
	name := o.GetLabels()[clusterv1.ClusterNameLabel]
	if name == "" {
		return nil
	}
	cluster := &clusterv1.Cluster{}
	if err := r.Client.Get(ctx, client.ObjectKey{Namespace: o.GetNamespace(), Name: name}, cluster); err != nil {
		if client.IgnoreNotFound(err) != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Reading the Cluster of a changed object", "cluster", name)
		}
		return nil
	}
	return r.clusterToControlPlane(ctx, cluster)
}

// watchNodes watches the Nodes of the servers; a watch that exists is kept.
func (r *Reconciler) watchNodes(ctx context.Context, cluster *clusterv1.Cluster) error {
	key := client.ObjectKeyFromObject(cluster)
	return r.ClusterCache.Watch(ctx, key, clustercache.NewWatcher(clustercache.WatcherOptions{
		Name:    controllerName + "-nodes",
		Watcher: r.controller,
		Kind:    &corev1.Node{},
		EventHandler: handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, _ client.Object) []ctrl.Request {
			current := &clusterv1.Cluster{}
			if err := r.Client.Get(ctx, key, current); err != nil {
				return nil
			}
			return r.clusterToControlPlane(ctx, current)
		}),
		Predicates: []predicate.TypedPredicate[client.Object]{serverNodeChanged},
	}))
}

// serverNodeChanged passes what decisions depend on, and no heartbeat.
var serverNodeChanged = predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool { return isServer(e.Object) },
	DeleteFunc: func(e event.DeleteEvent) bool { return isServer(e.Object) },
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, okBefore := e.ObjectOld.(*corev1.Node)
		after, okAfter := e.ObjectNew.(*corev1.Node)
		return okBefore && okAfter && (k3s.IsControlPlaneNode(before) || k3s.IsControlPlaneNode(after)) && nodeChanged(before, after)
	},
}

func isServer(o client.Object) bool {
	node, ok := o.(*corev1.Node)
	return ok && k3s.IsControlPlaneNode(node)
}

func nodeChanged(before, after *corev1.Node) bool {
	return before.Spec.ProviderID != after.Spec.ProviderID ||
		before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero() ||
		before.Status.NodeInfo.KubeletVersion != after.Status.NodeInfo.KubeletVersion ||
		!maps.Equal(before.Labels, after.Labels) ||
		!maps.Equal(before.Annotations, after.Annotations) ||
		!slices.EqualFunc(before.Status.Conditions, after.Status.Conditions, func(a, b corev1.NodeCondition) bool {
			return a.Type == b.Type && a.Status == b.Status && a.Reason == b.Reason
		})
}

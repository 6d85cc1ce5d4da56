package controllers

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/feature"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/predicates"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
)

// SetupWithManager adds the controller to a manager, whose cache should hold only Secrets with a cluster's label.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	log := ctrl.LoggerFrom(ctx).WithValues("controller", "kthreesconfig")
	b := ctrl.NewControllerManagedBy(mgr).
		For(&bootstrapv1.KThreesConfig{},
			builder.WithPredicates(predicates.ResourceHasFilterLabel(mgr.GetScheme(), log, r.WatchFilterValue))).
		Named("kthreesconfig").
		WithOptions(options).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(machineToConfig)).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(r.clusterToConfigs),
			builder.WithPredicates(clusterPredicate())).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(r.secretToConfigs))
	if feature.Gates.Enabled(feature.MachinePool) {
		b = b.Watches(&clusterv1.MachinePool{}, handler.EnqueueRequestsFromMapFunc(machinePoolToConfig))
	}
	if err := b.Complete(r); err != nil {
		return fmt.Errorf("setting up the controller of KThreesConfigs: %w", err)
	}
	return nil
}

func machineToConfig(_ context.Context, object client.Object) []reconcile.Request {
	return requestFor(object.GetNamespace(), configOf(object.(*clusterv1.Machine).Spec.Bootstrap))
}

func machinePoolToConfig(_ context.Context, object client.Object) []reconcile.Request {
	return requestFor(object.GetNamespace(), configOf(object.(*clusterv1.MachinePool).Spec.Template.Spec.Bootstrap))
}

func requestFor(namespace, name string) []reconcile.Request {
	if name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}}
}

// clusterPredicate lets through what a config may wait for.
func clusterPredicate() predicate.Predicate {
	type waitedFor struct {
		paused, provisioned, initialized bool
		endpoint                         clusterv1.APIEndpoint
	}
	of := func(object client.Object) waitedFor {
		cluster := object.(*clusterv1.Cluster)
		return waitedFor{
			paused:      ptr.Deref(cluster.Spec.Paused, false),
			provisioned: ptr.Deref(cluster.Status.Initialization.InfrastructureProvisioned, false),
			initialized: conditions.IsTrue(cluster, clusterv1.ClusterControlPlaneInitializedCondition),
			endpoint:    cluster.Spec.ControlPlaneEndpoint,
		}
	}
	return predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool { return of(e.ObjectOld) != of(e.ObjectNew) },
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	}
}

func (r *Reconciler) clusterToConfigs(ctx context.Context, object client.Object) []reconcile.Request {
	return r.requests(ctx, object.GetNamespace(), func(config *bootstrapv1.KThreesConfig) bool {
		return config.Labels[clusterv1.ClusterNameLabel] == object.GetName()
	})
}

// secretToConfigs finds the config whose bootstrap data a Secret holds, and those that may be waiting for it: as the
// token or a certificate authority of their cluster, or because the spec names it.
func (r *Reconciler) secretToConfigs(ctx context.Context, object client.Object) []reconcile.Request {
	cluster := object.GetLabels()[clusterv1.ClusterNameLabel]
	return r.requests(ctx, object.GetNamespace(), func(config *bootstrapv1.KThreesConfig) bool {
		if config.Name == object.GetName() {
			return true
		}
		return config.Status.DataSecretName == "" &&
			(config.Labels[clusterv1.ClusterNameLabel] == cluster || slices.Contains(secretsOf(&config.Spec), object.GetName()))
	})
}

func (r *Reconciler) requests(ctx context.Context, namespace string, wanted func(*bootstrapv1.KThreesConfig) bool) []reconcile.Request {
	configs := &bootstrapv1.KThreesConfigList{}
	if err := r.Client.List(ctx, configs, client.InNamespace(namespace)); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing KThreesConfigs failed")
		return nil
	}
	var requests []reconcile.Request
	for i := range configs.Items {
		if wanted(&configs.Items[i]) {
			requests = append(requests, requestFor(namespace, configs.Items[i].Name)...)
		}
	}
	return requests
}

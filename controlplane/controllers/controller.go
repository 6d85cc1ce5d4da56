package controllers

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util"
	capicontrollerutil "sigs.k8s.io/cluster-api/util/controller"
	"sigs.k8s.io/cluster-api/util/finalizers"
	"sigs.k8s.io/cluster-api/util/patch"
	"sigs.k8s.io/cluster-api/util/paused"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
	"github.com/capk3s/capk3s/pkg/token"
)

// +kubebuilder:rbac:groups=controlplane.cluster.x-k8s.io,resources=kthreescontrolplanes,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=controlplane.cluster.x-k8s.io,resources=kthreescontrolplanes/status,verbs=patch
// +kubebuilder:rbac:groups=controlplane.cluster.x-k8s.io,resources=kthreescontrolplanes/finalizers,verbs=update
// +kubebuilder:rbac:groups=bootstrap.cluster.x-k8s.io,resources=kthreesconfigs,verbs=list;watch;create;patch;delete
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines/status,verbs=patch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machinepools,verbs=list;watch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=*,verbs=list;watch;create;patch;delete
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=get;list;watch
// Changing the owners of a Secret takes the right to delete it where OwnerReferencesPermissionEnforcement is on.
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconciler reconciles KThreesControlPlanes.
type Reconciler struct {
	// Client reads from a cache, which holds only Secrets with the label of a cluster's name.
	Client client.Client

	// APIReader reads without a cache; absence is believed only from it.
	APIReader client.Reader

	// ClusterCache gives access to the workload clusters.
	ClusterCache clustercache.ClusterCache

	// Recorder tells humans about steps.
	Recorder events.EventRecorder

	// WatchFilterValue restricts the reconciler to objects with this value of the label
	// cluster.x-k8s.io/watch-filter. Empty: all objects.
	WatchFilterValue string

	controller     capicontrollerutil.Controller
	machineDeleter capicontrollerutil.ClientWithDeleteResponse
	supervisors    supervisors
	verdicts       token.Verdicts
}

// Reconcile brings one KThreesControlPlane closer to its spec.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	controlPlane := &controlplanev1.KThreesControlPlane{}
	if err := r.Client.Get(ctx, req.NamespacedName, controlPlane); err != nil {
		if apierrors.IsNotFound(err) {
			r.controller.ClearConsistencyStore(req.NamespacedName, "")
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	cluster, err := r.ownerCluster(ctx, controlPlane)
	if err != nil || cluster == nil {
		return ctrl.Result{}, err
	}
	if added, err := finalizers.EnsureFinalizer(ctx, r.Client, controlPlane, controlplanev1.Finalizer); err != nil || added {
		return ctrl.Result{}, err
	}
	if isPaused, requeue, err := paused.EnsurePausedCondition(ctx, r.Client, cluster, controlPlane); err != nil || isPaused || requeue {
		return ctrl.Result{}, err
	}

	patchHelper, err := patch.NewHelper(controlPlane, r.Client)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("preparing the patch of KThreesControlPlane %s: %w", controlPlane.Name, err)
	}
	result, reconcileErr := r.reconcile(ctx, cluster, controlPlane)
	if reconcileErr == nil {
		controlPlane.Status.ObservedGeneration = controlPlane.Generation
	}
	patchErr := patchHelper.Patch(ctx, controlPlane, patch.WithOwnedConditions{Conditions: ownedConditions})
	if !controlPlane.DeletionTimestamp.IsZero() {
		// The last patch may have taken the finalizer away.
		patchErr = client.IgnoreNotFound(patchErr)
	}
	return result, errors.Join(reconcileErr, patchErr)
}

// ownerCluster is the Cluster that refers to the control plane; nil while there is none, which is normal for one
// that was just created or restored. The label and the reference are Cluster API's to set.
func (r *Reconciler) ownerCluster(ctx context.Context, controlPlane *controlplanev1.KThreesControlPlane) (*clusterv1.Cluster, error) {
	cluster, err := util.GetOwnerCluster(ctx, r.Client, controlPlane.ObjectMeta)
	if err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("reading the Cluster of KThreesControlPlane %s: %w", controlPlane.Name, err)
	}
	return cluster, nil
}

// reconcile reads, decides, writes and reports.
func (r *Reconciler) reconcile(ctx context.Context, cluster *clusterv1.Cluster, controlPlane *controlplanev1.KThreesControlPlane) (ctrl.Result, error) {
	s, err := r.readScope(ctx, cluster, controlPlane)
	if err != nil {
		return ctrl.Result{}, err
	}
	if !controlPlane.DeletionTimestamp.IsZero() {
		return r.reconcileDelete(ctx, s)
	}
	if reason, message := handsOff(s); message != "" {
		r.reportHandsOff(s, reason, message)
		return ctrl.Result{}, nil
	}

	if err := r.adopt(ctx, s); err != nil {
		return ctrl.Result{}, err
	}
	err = errors.Join(
		r.ownInfrastructureTemplate(ctx, s),
		r.keepCustody(ctx, s),
	)
	r.readWorkload(ctx, s)
	p := decide(s)
	err = errors.Join(err,
		r.propagate(ctx, s),
		r.deleteStrays(ctx, s),
		r.act(ctx, s, &p),
		r.report(ctx, s, &p),
	)
	return ctrl.Result{RequeueAfter: p.requeueAfter}, err
}

// handsOff says why the control plane must do nothing for the Cluster; empty when it may work.
func handsOff(s *scope) (reason, message string) {
	if message = namesUs(s); message != "" {
		return controlplanev1.ForeignClusterReason, message
	}
	if message = mixedOwnership(s); message != "" {
		return controlplanev1.ForeignMachinesReason, message
	}
	return controlplanev1.AdoptionFailedReason, unadoptable(s)
}

// namesUs says why the control plane isn't the Cluster's; empty when it is.
func namesUs(s *scope) string {
	ref := s.cluster.Spec.ControlPlaneRef
	if ref.APIGroup == controlplanev1.GroupVersion.Group && ref.Kind == "KThreesControlPlane" && ref.Name == s.controlPlane.Name {
		return ""
	}
	return fmt.Sprintf("Cluster %s names %s %s as its control plane; nothing is done for this one", s.cluster.Name, ref.Kind, ref.Name)
}

// SetupWithManager adds the reconciler to a manager.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	c, err := r.build(ctx, mgr, options)
	if err != nil {
		return fmt.Errorf("setting up the KThreesControlPlane controller: %w", err)
	}
	r.controller = c
	r.machineDeleter, err = capicontrollerutil.NewClientWithDeleteResponse(&clusterv1.Machine{}, machineResource,
		mgr.GetScheme(), mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("making the client that deletes Machines: %w", err)
	}
	return nil
}

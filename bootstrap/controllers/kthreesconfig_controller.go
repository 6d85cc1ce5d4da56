package controllers

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/bootstrap/kubeadm/pkg/locking"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/paused"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
	"github.com/capk3s/capk3s/bootstrap/internal/bootdata"
)

// lockRetry is how soon a server that must not found the cluster yet looks again. The lock is a ConfigMap, which isn't
// watched, and is contended only while a first server comes up.
const lockRetry = 10 * time.Second

// Reconciler makes the bootstrap data of KThreesConfigs.
type Reconciler struct {
	// Client reads from a cache that holds Secrets with a cluster's label only.
	Client client.Client

	// APIReader reads without a cache.
	APIReader client.Reader

	// Recorder writes events.
	Recorder events.EventRecorder

	// WatchFilterValue is the value of the label cluster.x-k8s.io/watch-filter of the objects that are reconciled.
	// Empty: all objects.
	WatchFilterValue string
}

// +kubebuilder:rbac:groups=bootstrap.cluster.x-k8s.io,resources=kthreesconfigs,verbs=list;watch;patch
// +kubebuilder:rbac:groups=bootstrap.cluster.x-k8s.io,resources=kthreesconfigs/status,verbs=patch
// +kubebuilder:rbac:groups=bootstrap.cluster.x-k8s.io,resources=kthreesconfigs/finalizers,verbs=update
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines;machinepools,verbs=get;list;watch
// Changing the owners of a Secret takes the right to delete it where OwnerReferencesPermissionEnforcement is on.
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=configmaps,verbs=get;create;delete
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile makes the bootstrap data of one KThreesConfig as soon as everything that they need is there, and never
// again.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	s, err := r.read(ctx, req.NamespacedName)
	if err != nil || s == nil {
		return ctrl.Result{}, err
	}
	original := s.config.DeepCopy()
	if isPaused, again, err := paused.EnsurePausedCondition(ctx, r.Client, s.cluster, s.config); err != nil || isPaused || again {
		return ctrl.Result{}, err
	}
	err = r.reconcile(ctx, s)
	return r.report(ctx, s, original, err)
}

// read returns nil while the config isn't part of a cluster, and when it is being deleted.
func (r *Reconciler) read(ctx context.Context, key client.ObjectKey) (*scope, error) {
	config := &bootstrapv1.KThreesConfig{}
	if err := r.Client.Get(ctx, key, config); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if !config.DeletionTimestamp.IsZero() {
		return nil, nil
	}
	owner, err := findOwner(ctx, r.Client, config)
	if err != nil || owner == nil || !owner.GetDeletionTimestamp().IsZero() {
		return nil, err
	}
	cluster := &clusterv1.Cluster{}
	clusterKey := client.ObjectKey{Namespace: config.Namespace, Name: owner.cluster}
	if err := r.Client.Get(ctx, clusterKey, cluster); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("reading Cluster %s: %w", owner.cluster, err)
	}
	return &scope{config: config, owner: owner, cluster: cluster}, nil
}

// reconcile returns a [refusal] while there are no bootstrap data.
func (r *Reconciler) reconcile(ctx context.Context, s *scope) error {
	name := s.config.Name
	if s.owner.dataSecretName != "" {
		name = s.owner.dataSecretName
	}
	secret, err := r.readDataSecret(ctx, client.ObjectKey{Namespace: s.config.Namespace, Name: name})
	if err != nil {
		return err
	}
	s.secret = secret
	if s.settled() {
		return r.keep(ctx, s, name)
	}
	if secret != nil && !isOurs(secret, s.config, s.cluster.Name) {
		return foreign(secret)
	}
	if err := mayRender(s); err != nil {
		return err
	}
	return r.provide(ctx, s)
}

// keep leaves bootstrap data as they are, tells the status of them, which a move or a restore loses, and repairs who
// owns them.
func (r *Reconciler) keep(ctx context.Context, s *scope, name string) error {
	setDataSecret(s.config, name)
	if err := r.releaseInitLock(ctx, s); err != nil {
		return err
	}
	if s.secret == nil && !s.owner.joined {
		return lost(s, name)
	}
	if s.secret == nil || name != s.config.Name {
		return nil
	}
	if !isOurs(s.secret, s.config, s.cluster.Name) {
		return foreign(s.secret)
	}
	return r.patchSecret(ctx, s.secret, owned(s.secret, s.config))
}

func lost(s *scope, name string) error {
	advice := "Delete the Machine, so that a new one takes its place"
	if s.owner.kind == machinePoolKind {
		advice = "Name a new KThreesConfig in spec.template.spec.bootstrap.configRef of the MachinePool"
	}
	return refuse(bootstrapv1.DataSecretLostReason,
		"Secret %s with the bootstrap data is gone, and bootstrap data are made only once. %s", name, advice)
}

// provide makes the bootstrap data.
func (r *Reconciler) provide(ctx context.Context, s *scope) error {
	role, err := chooseRole(s)
	if err != nil {
		return err
	}
	in, err := r.readInputs(ctx, s, role)
	if err != nil {
		return err
	}
	machine, err := in.machine(s, role)
	if err != nil {
		return err
	}
	data, err := render(&s.config.Spec, machine)
	if err != nil {
		return invalid(err)
	}
	if err := fitsSecret(&s.config.Spec, data); err != nil {
		return err
	}
	if err := r.confirmUnused(ctx, s); err != nil {
		return err
	}
	if role == bootdata.FirstServer {
		if err := r.takeInitLock(ctx, s); err != nil {
			return err
		}
	}
	if err := r.annotateExpiry(ctx, s, role); err != nil {
		return err
	}
	if err := r.writeDataSecret(ctx, s, data); err != nil {
		return err
	}
	setDataSecret(s.config, s.config.Name)
	if warning := sizeWarning(len(data)); warning != "" {
		r.event(s.config, corev1.EventTypeWarning, "LargeBootstrapData", "%s", warning)
	}
	r.event(s.config, corev1.EventTypeNormal, "DataSecretCreated", "Secret %s holds the bootstrap data of a %s, %d bytes",
		s.config.Name, role, len(data))
	return nil
}

// confirmUnused asks the API server whether the owner uses bootstrap data that the cache doesn't know of yet.
func (r *Reconciler) confirmUnused(ctx context.Context, s *scope) error {
	live, err := readOwner(ctx, r.APIReader, s.owner.kind, client.ObjectKeyFromObject(s.owner), s.config.Name)
	if err != nil {
		return err
	}
	if live == nil || live.dataSecretName != "" {
		return errStale
	}
	return nil
}

var errStale = errors.New("the owner has changed in the meantime")

// takeInitLock guards the founding of a cluster once more; the order to found it was given to one machine only.
func (r *Reconciler) takeInitLock(ctx context.Context, s *scope) error {
	servers := &clusterv1.MachineList{}
	err := r.Client.List(ctx, servers, client.InNamespace(s.config.Namespace),
		client.MatchingLabels{clusterv1.ClusterNameLabel: s.cluster.Name}, client.HasLabels{clusterv1.MachineControlPlaneLabel})
	if err != nil {
		return fmt.Errorf("listing the servers of Cluster %s: %w", s.cluster.Name, err)
	}
	if r := noOtherFounder(s, servers.Items); r != nil {
		return r
	}
	if locking.NewControlPlaneInitMutex(r.Client).Lock(ctx, s.cluster, s.owner.machine()) {
		return nil
	}
	wait := waitFor(bootstrapv1.WaitingForInitLockReason, "Another machine holds the lock to found Cluster %s: ConfigMap %s-lock",
		s.cluster.Name, s.cluster.Name)
	wait.again = lockRetry
	return wait
}

// releaseInitLock is for the machine that founded the cluster, once the cluster is there.
func (r *Reconciler) releaseInitLock(ctx context.Context, s *scope) error {
	order := s.config.Annotations[bootstrapv1.OrderAnnotation]
	if order != bootstrapv1.OrderInit && order != bootstrapv1.OrderInitAnew ||
		!conditions.IsTrue(s.cluster, clusterv1.ClusterControlPlaneInitializedCondition) {
		return nil
	}
	if !locking.NewControlPlaneInitMutex(r.Client).Unlock(ctx, s.cluster) {
		return fmt.Errorf("releasing the lock to found Cluster %s", s.cluster.Name)
	}
	return nil
}

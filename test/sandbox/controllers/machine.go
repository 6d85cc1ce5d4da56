package controllers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/patch"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	infrav1 "github.com/capk3s/capk3s/test/sandbox/api/v1beta1"
	"github.com/capk3s/capk3s/test/sandbox/machine"
)

// How often a machine is looked at: closely while it boots, and then now and
// then to see that it is still on.
const (
	bootInterval  = time.Second
	aliveInterval = 5 * time.Second
)

// Machine reconciles SandboxMachines.
type Machine struct {
	Client client.Client
	// APIReader reads bootstrap data Secrets past the cache.
	APIReader client.Reader
	Host      *machine.Host
}

// SetupWithManager registers the controller; it sees changes of Machines and Clusters.
func (r *Machine) SetupWithManager(mgr ctrl.Manager) error {
	ofCluster, err := util.ClusterToTypedObjectsMapper(mgr.GetClient(), &infrav1.SandboxMachineList{}, mgr.GetScheme())
	if err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).For(&infrav1.SandboxMachine{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: 10}).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(
			util.MachineToInfrastructureMapFunc(infrav1.GroupVersion.WithKind("SandboxMachine")))).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(ofCluster)).
		Complete(r)
}

// Reconcile makes, watches and removes the machine.
func (r *Machine) Reconcile(ctx context.Context, req ctrl.Request) (_ ctrl.Result, reterr error) {
	infra := &infrav1.SandboxMachine{}
	if err := r.Client.Get(ctx, req.NamespacedName, infra); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	owner, err := util.GetOwnerMachine(ctx, r.Client, infra.ObjectMeta)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, err
	}
	cluster, err := util.GetClusterFromMetadata(ctx, r.Client, infra.ObjectMeta)
	if err != nil && !errors.Is(err, util.ErrNoCluster) && !apierrors.IsNotFound(err) {
		return ctrl.Result{}, err
	}
	if cluster != nil && annotations.IsPaused(cluster, infra) {
		return ctrl.Result{}, nil
	}
	if infra.DeletionTimestamp.IsZero() && (owner == nil || cluster == nil) {
		return ctrl.Result{}, nil
	}
	helper, err := patch.NewHelper(infra, r.Client)
	if err != nil {
		return ctrl.Result{}, err
	}
	defer func() {
		reterr = kerrors.NewAggregate([]error{reterr, helper.Patch(ctx, infra)})
	}()
	if !infra.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, r.reconcileDelete(ctx, infra)
	}
	return r.reconcileNormal(ctx, infra, owner, cluster)
}

func (r *Machine) reconcileDelete(ctx context.Context, infra *infrav1.SandboxMachine) error {
	m, err := r.Host.Open(infra.Namespace, infra.Name)
	if err != nil && !errors.Is(err, machine.ErrNotFound) {
		return err
	}
	if err == nil {
		if err := m.Delete(ctx); err != nil {
			return err
		}
	}
	controllerutil.RemoveFinalizer(infra, infrav1.MachineFinalizer)
	return nil
}

func (r *Machine) reconcileNormal(ctx context.Context, infra *infrav1.SandboxMachine, owner *clusterv1.Machine, cluster *clusterv1.Cluster) (ctrl.Result, error) {
	if controllerutil.AddFinalizer(infra, infrav1.MachineFinalizer) {
		return ctrl.Result{RequeueAfter: time.Millisecond}, nil // written before anything is made
	}
	m, err := r.Host.Open(infra.Namespace, infra.Name)
	if errors.Is(err, machine.ErrNotFound) {
		m, err = r.create(ctx, infra, owner, cluster)
		if m == nil || err != nil {
			return ctrl.Result{}, err
		}
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	if !m.Started() {
		if err := m.Start(ctx); err != nil {
			return ctrl.Result{}, err
		}
	}
	infra.Spec.ProviderID = providerID(infra)
	infra.Status.Initialization.Provisioned = ptr.To(true)
	infra.Status.FailureDomain = owner.Spec.FailureDomain
	infra.Status.Addresses = []clusterv1.MachineAddress{
		{Type: clusterv1.MachineInternalIP, Address: m.Address().String()},
		{Type: clusterv1.MachineHostName, Address: m.Name()},
	}
	return r.observe(infra, m)
}

// create makes the machine once there is something to boot it with; until then,
// and when it was there before, it returns nil and says why in a condition.
func (r *Machine) create(ctx context.Context, infra *infrav1.SandboxMachine, owner *clusterv1.Machine, cluster *clusterv1.Cluster) (*machine.Machine, error) {
	notReady := func(reason, message string) (*machine.Machine, error) {
		conditions.Set(infra, metav1.Condition{Type: infrav1.ReadyCondition, Status: metav1.ConditionFalse, Reason: reason, Message: message})
		return nil, nil
	}
	if infra.Spec.ProviderID != "" {
		return notReady("MachineGone", "The machine was there and is no more; a machine is never made a second time")
	}
	if !ptr.Deref(cluster.Status.Initialization.InfrastructureProvisioned, false) {
		return notReady("WaitingForClusterInfrastructure", "The cluster's infrastructure isn't provisioned yet")
	}
	if owner.Spec.Bootstrap.DataSecretName == nil {
		return notReady("WaitingForBootstrapData", "The Machine has no bootstrap data yet")
	}
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: infra.Namespace, Name: *owner.Spec.Bootstrap.DataSecretName}
	if err := r.APIReader.Get(ctx, key, secret); err != nil {
		return nil, fmt.Errorf("reading bootstrap data of Machine %s: %w", owner.Name, err)
	}
	if format := string(secret.Data["format"]); format != "" && format != "cloud-config" {
		return notReady("UnsupportedBootstrapFormat", "Sandbox machines run cloud-config, not "+format)
	}
	return r.Host.Create(ctx, machine.Config{
		Namespace: infra.Namespace, Name: infra.Name, ProviderID: providerID(infra),
		UserData: secret.Data["value"], Preinstalled: infra.Spec.PreinstalledVersion,
	})
}

// observe reports whether the machine is on and how far its bootstrap data is.
func (r *Machine) observe(infra *infrav1.SandboxMachine, m *machine.Machine) (ctrl.Result, error) {
	ready := metav1.Condition{Type: infrav1.ReadyCondition, Status: metav1.ConditionTrue, Reason: "MachineOn"}
	if !m.Running() {
		ready.Status, ready.Reason = metav1.ConditionFalse, "MachineOff"
	}
	conditions.Set(infra, ready)

	succeeded := metav1.Condition{Type: infrav1.BootstrapSucceededCondition, Status: metav1.ConditionFalse, Reason: "Bootstrapping"}
	if conditions.IsTrue(infra, succeeded.Type) {
		return ctrl.Result{RequeueAfter: aliveInterval}, nil // a reboot doesn't undo it
	}
	boot, err := m.Boot()
	if err != nil {
		return ctrl.Result{}, err
	}
	switch {
	case boot.Done:
		succeeded.Status, succeeded.Reason = metav1.ConditionTrue, "BootstrapSucceeded"
	case boot.Failed:
		succeeded.Reason = "BootstrapFailed"
		succeeded.Message = strings.Join(append([]string{"cloud-init ended without the sentinel file"}, boot.Errors...), "; ")
	}
	conditions.Set(infra, succeeded)
	return ctrl.Result{RequeueAfter: bootInterval}, nil
}

func providerID(infra *infrav1.SandboxMachine) string {
	return "sandbox:///" + infra.Namespace + "/" + infra.Name
}

package custody

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/test/builder"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/capk3s/capk3s/pkg/k3s"
)

const (
	workloadLabel  = "custody.test/workload"
	infraFinalizer = "custody.test/machine"
	providerPrefix = "custody:///"

	// bootRetry is how soon a machine starts K3s again, which systemd does after 5 s.
	bootRetry = 200 * time.Millisecond
)

// infrastructure pretends to be an infrastructure provider and what K3s does to Nodes.
type infrastructure struct {
	client client.Client
}

func (p *infrastructure) setup(mgr ctrl.Manager) error {
	sameName := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []ctrl.Request {
		return []ctrl.Request{{NamespacedName: client.ObjectKeyFromObject(o)}}
	})
	options := controller.Options{MaxConcurrentReconciles: concurrency}
	err := ctrl.NewControllerManagedBy(mgr).Named("infra-machine").For(infraObject(builder.GenericInfrastructureMachineKind)).
		Watches(&clusterv1.Machine{}, sameName).WithOptions(options).Complete(request(p.machine))
	if err != nil {
		return err
	}
	err = ctrl.NewControllerManagedBy(mgr).Named("infra-cluster").For(infraObject(builder.GenericInfrastructureClusterKind)).
		WithOptions(options).Complete(request(p.cluster))
	if err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).Named("k3s-node").For(&corev1.Node{}).WithOptions(options).Complete(request(removeEtcdMember))
}

type request func(context.Context, ctrl.Request) (ctrl.Result, error)

// Reconcile calls the function.
func (r request) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	return r(ctx, req)
}

func infraObject(kind string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion(builder.InfrastructureGroupVersion.String())
	u.SetKind(kind)
	return u
}

func (p *infrastructure) cluster(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	infra := infraObject(builder.GenericInfrastructureClusterKind)
	if err := p.client.Get(ctx, req.NamespacedName, infra); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	return ctrl.Result{}, p.setProvisioned(ctx, infra)
}

func (p *infrastructure) setProvisioned(ctx context.Context, infra *unstructured.Unstructured) error {
	if done, _, _ := unstructured.NestedBool(infra.Object, "status", "initialization", "provisioned"); done {
		return nil
	}
	before := infra.DeepCopy()
	if err := unstructured.SetNestedField(infra.Object, true, "status", "initialization", "provisioned"); err != nil {
		return err
	}
	return client.IgnoreNotFound(p.client.Status().Patch(ctx, infra, client.MergeFrom(before)))
}

// machine starts a machine as soon as there are bootstrap data, and ends it with its object.
func (p *infrastructure) machine(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	infra := infraObject(builder.GenericInfrastructureMachineKind)
	if err := p.client.Get(ctx, req.NamespacedName, infra); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if paused, err := p.isPaused(ctx, infra); err != nil || paused {
		return ctrl.Result{RequeueAfter: bootRetry}, err
	}
	servers := all.of(ctx, req.Namespace)
	before := infra.DeepCopy()
	if !infra.GetDeletionTimestamp().IsZero() {
		servers.kill(infra.GetName())
		controllerutil.RemoveFinalizer(infra, infraFinalizer)
		return ctrl.Result{}, client.IgnoreNotFound(p.client.Patch(ctx, infra, client.MergeFrom(before)))
	}
	machine, err := util.GetOwnerMachine(ctx, p.client, metav1.ObjectMeta{Namespace: req.Namespace, OwnerReferences: infra.GetOwnerReferences()})
	if err != nil || machine == nil || machine.Spec.Bootstrap.DataSecretName == nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	providerID := providerPrefix + infra.GetName()
	if known, _, _ := unstructured.NestedString(infra.Object, "spec", "providerID"); known != providerID {
		if err := p.boot(ctx, servers, machine); err != nil {
			return ctrl.Result{RequeueAfter: bootRetry}, nil
		}
		controllerutil.AddFinalizer(infra, infraFinalizer)
		if err := unstructured.SetNestedField(infra.Object, providerID, "spec", "providerID"); err != nil {
			return ctrl.Result{}, err
		}
		if err := p.client.Patch(ctx, infra, client.MergeFrom(before)); err != nil {
			return ctrl.Result{}, err
		}
	}
	return ctrl.Result{}, p.setProvisioned(ctx, infra)
}

// isPaused says whether the object's Cluster is paused; one that doesn't exist is.
func (p *infrastructure) isPaused(ctx context.Context, infra *unstructured.Unstructured) (bool, error) {
	cluster := &clusterv1.Cluster{}
	key := client.ObjectKey{Namespace: infra.GetNamespace(), Name: infra.GetLabels()[clusterv1.ClusterNameLabel]}
	if err := p.client.Get(ctx, key, cluster); err != nil {
		return true, client.IgnoreNotFound(err)
	}
	return annotations.IsPaused(cluster, infra), nil
}

func (p *infrastructure) boot(ctx context.Context, servers *workload, machine *clusterv1.Machine) error {
	secret := &corev1.Secret{}
	if err := p.client.Get(ctx, client.ObjectKey{Namespace: machine.Namespace, Name: *machine.Spec.Bootstrap.DataSecretName}, secret); err != nil {
		return err
	}
	if err := servers.boot(machine.Name, util.IsControlPlaneMachine(machine), secret.Data["value"]); err != nil {
		return err
	}
	return registerNode(ctx, servers, machine)
}

// registerNode makes the Node as a kubelet and K3s do.
func registerNode(ctx context.Context, servers *workload, machine *clusterv1.Machine) error {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: machine.Name, Labels: map[string]string{workloadLabel: servers.id}},
		Spec:       corev1.NodeSpec{ProviderID: providerPrefix + machine.Name},
	}
	status := corev1.NodeStatus{
		NodeInfo: corev1.NodeSystemInfo{KubeletVersion: machine.Spec.Version},
		Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionTrue},
			{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse},
			{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse},
			{Type: corev1.NodePIDPressure, Status: corev1.ConditionFalse},
		},
	}
	if util.IsControlPlaneMachine(machine) {
		node.Labels[k3s.ControlPlaneLabel], node.Labels[k3s.EtcdLabel] = "true", "true"
		node.Annotations = map[string]string{k3s.EtcdNodeNameAnnotation: memberOf(machine.Name)}
		status.Conditions = append(status.Conditions, corev1.NodeCondition{
			Type: k3s.EtcdIsVoterCondition, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now(),
		})
	}
	if err := env.Client.Create(ctx, node); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating Node %s: %w", node.Name, err)
	}
	node.Status = status
	if err := env.Client.Status().Update(ctx, node); err != nil {
		return fmt.Errorf("writing the status of Node %s: %w", node.Name, err)
	}
	return nil
}

// removeEtcdMember does what K3s does when a Node is annotated.
func removeEtcdMember(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	node := &corev1.Node{}
	if err := env.Client.Get(ctx, req.NamespacedName, node); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	servers := all.of(ctx, node.Labels[workloadLabel])
	if servers == nil || node.Annotations[k3s.EtcdRemoveAnnotation] != "true" {
		return ctrl.Result{}, nil
	}
	member := k3s.EtcdMemberName(node)
	servers.removeMember(member)
	before := node.DeepCopy()
	delete(node.Annotations, k3s.EtcdRemoveAnnotation)
	delete(node.Annotations, k3s.EtcdNodeNameAnnotation)
	node.Annotations[k3s.EtcdRemovedNodeNameAnnotation] = member
	return ctrl.Result{}, client.IgnoreNotFound(env.Client.Patch(ctx, node, client.MergeFrom(before)))
}

// Package controllers turns SandboxClusters and SandboxMachines into what they
// describe: an endpoint on the world's bridge, and machines.
package controllers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strconv"
	"sync"

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
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	infrav1 "github.com/capk3s/capk3s/test/sandbox/api/v1beta1"
	"github.com/capk3s/capk3s/test/sandbox/proxy"
)

// apiPort is where K3s' servers listen, and the endpoint with them.
const apiPort = 6443

// Cluster reconciles SandboxClusters.
type Cluster struct {
	Client client.Client
	// Endpoints is where addresses of control planes are taken from; Bridge is
	// the network interface that gets them.
	Endpoints netip.Prefix
	Bridge    string

	mu      sync.Mutex
	proxies map[client.ObjectKey]*proxy.Proxy
}

// SetupWithManager registers the controller; it sees changes of Clusters and of
// the machines behind the endpoint.
func (r *Cluster) SetupWithManager(mgr ctrl.Manager) error {
	gvk := infrav1.GroupVersion.WithKind("SandboxCluster")
	return ctrl.NewControllerManagedBy(mgr).For(&infrav1.SandboxCluster{}).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(
			util.ClusterToInfrastructureMapFunc(context.Background(), gvk, mgr.GetClient(), &infrav1.SandboxCluster{}))).
		Watches(&infrav1.SandboxMachine{}, handler.EnqueueRequestsFromMapFunc(r.ofMachine)).
		Complete(r)
}

// ofMachine finds the SandboxCluster whose endpoint a control-plane machine is behind.
func (r *Cluster) ofMachine(ctx context.Context, obj client.Object) []reconcile.Request {
	if _, ok := obj.GetLabels()[clusterv1.MachineControlPlaneLabel]; !ok {
		return nil
	}
	cluster, err := util.GetClusterFromMetadata(ctx, r.Client, metav1.ObjectMeta{Namespace: obj.GetNamespace(), Labels: obj.GetLabels()})
	if err != nil || !cluster.Spec.InfrastructureRef.IsDefined() {
		return nil // the cluster's own event comes later
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: obj.GetNamespace(), Name: cluster.Spec.InfrastructureRef.Name}}}
}

// Reconcile opens the endpoint and keeps its backends.
func (r *Cluster) Reconcile(ctx context.Context, req ctrl.Request) (_ ctrl.Result, reterr error) {
	infra := &infrav1.SandboxCluster{}
	if err := r.Client.Get(ctx, req.NamespacedName, infra); err != nil {
		if apierrors.IsNotFound(err) {
			// Moved to another management cluster, whose provider opens it again.
			r.closeEndpoint(ctx, req.NamespacedName, "")
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, err
	}
	cluster, err := util.GetOwnerCluster(ctx, r.Client, infra.ObjectMeta)
	if err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if cluster == nil && infra.DeletionTimestamp.IsZero() || cluster != nil && annotations.IsPaused(cluster, infra) {
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
		r.closeEndpoint(ctx, req.NamespacedName, infra.Spec.ControlPlaneEndpoint.Host)
		controllerutil.RemoveFinalizer(infra, infrav1.ClusterFinalizer)
		return ctrl.Result{}, nil
	}
	return ctrl.Result{}, r.reconcileNormal(ctx, infra, cluster)
}

func (r *Cluster) reconcileNormal(ctx context.Context, infra *infrav1.SandboxCluster, cluster *clusterv1.Cluster) error {
	controllerutil.AddFinalizer(infra, infrav1.ClusterFinalizer)
	if infra.Spec.ControlPlaneEndpoint.IsZero() {
		host, err := r.freeAddress(ctx)
		if err != nil {
			return err
		}
		infra.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: host, Port: apiPort}
		// Taken before the next cluster looks for a free one.
		if err := r.Client.Update(ctx, infra); err != nil {
			return fmt.Errorf("setting the endpoint of SandboxCluster %s: %w", infra.Name, err)
		}
	}
	backends, err := r.backends(ctx, cluster)
	if err != nil {
		return err
	}
	endpoint, err := r.openEndpoint(ctx, client.ObjectKeyFromObject(infra), infra.Spec.ControlPlaneEndpoint)
	if err != nil {
		return err
	}
	endpoint.SetBackends(backends)
	infra.Status.FailureDomains = infra.Spec.FailureDomains
	infra.Status.Initialization.Provisioned = ptr.To(true)
	conditions.Set(infra, metav1.Condition{Type: infrav1.ReadyCondition, Status: metav1.ConditionTrue, Reason: "EndpointOpen"})
	return nil
}

// backends are the addresses of the cluster's control-plane machines that
// aren't being deleted; whether they are alive is for the proxy to find out.
func (r *Cluster) backends(ctx context.Context, cluster *clusterv1.Cluster) ([]string, error) {
	machines := &infrav1.SandboxMachineList{}
	err := r.Client.List(ctx, machines, client.InNamespace(cluster.Namespace),
		client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.Name}, client.HasLabels{clusterv1.MachineControlPlaneLabel})
	if err != nil {
		return nil, fmt.Errorf("listing machines of cluster %s: %w", cluster.Name, err)
	}
	var backends []string
	for _, machine := range machines.Items {
		for _, address := range machine.Status.Addresses {
			if address.Type == clusterv1.MachineInternalIP && machine.DeletionTimestamp.IsZero() {
				backends = append(backends, net.JoinHostPort(address.Address, strconv.Itoa(apiPort)))
			}
		}
	}
	return backends, nil
}

// freeAddress is the first that no SandboxCluster has. Reconciles run one at a
// time, so it stays free until it is written.
func (r *Cluster) freeAddress(ctx context.Context) (string, error) {
	clusters := &infrav1.SandboxClusterList{}
	if err := r.Client.List(ctx, clusters); err != nil {
		return "", fmt.Errorf("listing SandboxClusters: %w", err)
	}
	used := map[string]bool{}
	for _, cluster := range clusters.Items {
		used[cluster.Spec.ControlPlaneEndpoint.Host] = true
	}
	for address := r.Endpoints.Masked().Addr().Next(); r.Endpoints.Contains(address); address = address.Next() {
		if !used[address.String()] {
			return address.String(), nil
		}
	}
	return "", errors.New("all endpoint addresses are taken")
}

func (r *Cluster) openEndpoint(ctx context.Context, key client.ObjectKey, endpoint clusterv1.APIEndpoint) (*proxy.Proxy, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.proxies[key]; p != nil {
		return p, nil
	}
	if err := r.address(ctx, "replace", endpoint.Host); err != nil {
		return nil, err
	}
	p, err := proxy.Listen(net.JoinHostPort(endpoint.Host, strconv.Itoa(int(endpoint.Port))))
	if err != nil {
		return nil, err
	}
	if r.proxies == nil {
		r.proxies = map[client.ObjectKey]*proxy.Proxy{}
	}
	r.proxies[key] = p
	return p, nil
}

// closeEndpoint closes what is open and, if a host is given, gives its address up.
func (r *Cluster) closeEndpoint(ctx context.Context, key client.ObjectKey, host string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.proxies[key]; p != nil {
		p.Close()
		delete(r.proxies, key)
	}
	if host != "" {
		_ = r.address(ctx, "delete", host) // gone already, or never there
	}
}

func (r *Cluster) address(ctx context.Context, verb, host string) error {
	out, err := exec.CommandContext(ctx, "ip", "address", verb, host+"/32", "dev", r.Bridge).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s address %s on %s: %w: %s", verb, host, r.Bridge, err, out)
	}
	return nil
}

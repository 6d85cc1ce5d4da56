package controllers

import (
	"context"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capk3s/capk3s/pkg/k3s"
)

// readRemover reads which server removes members from etcd, if one has to go: it is best kept until the last. One that
// removes itself can't record that it did, and until its lease of 45 seconds has run out no other server can.
// What isn't known is no reason to wait, so errors count as not known.
func (r *Reconciler) readRemover(ctx context.Context, s *scope) {
	if !s.shrinks() {
		return
	}
	// Uncached: the Lease is renewed every two seconds, and a cache would hear of it each time.
	workloadClient, err := r.ClusterCache.GetUncachedClient(ctx, client.ObjectKeyFromObject(s.cluster))
	if err != nil {
		return
	}
	lease := &coordinationv1.Lease{}
	if err := workloadClient.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: k3s.EtcdLease}, lease); err != nil {
		return
	}
	s.workload.remover = ptr.Deref(lease.Spec.HolderIdentity, "")
}

// shrinks says whether a server may have to go now.
func (s *scope) shrinks() bool {
	return len(s.active()) > s.replicas() || (s.maxSurge() == 0 && len(s.outdated()) > 0)
}

// removesMembers says whether a Machine's server is the one that removes members from etcd. K3s holds the Lease in the
// name of the host, which a Node has in lower case.
func (w *workload) removesMembers(machine *clusterv1.Machine) bool {
	node := w.nodeOf(machine)
	return node != nil && strings.EqualFold(node.Name, w.remover)
}

package controllers

import (
	"context"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capk3s/capk3s/pkg/k3s"
)

// liveNodesTimeout bounds a request to a server that may be the removed one, which accepts it and never answers.
const liveNodesTimeout = 5 * time.Second

// readRemovedNodes reads the Nodes anew whose etcd member is gone though the cache doesn't know yet that K3s has
// recorded it. The cache watches through one server, and one that left etcd keeps its watches open without ever
// sending anything: a cache that hangs on the removed server would never hear of the record.
func (r *Reconciler) readRemovedNodes(ctx context.Context, s *scope) {
	w := &s.workload
	if w.nodesErr != nil || w.membersErr != nil {
		return
	}
	for _, machine := range heldMachines(s) {
		node := w.nodeOf(machine)
		if node == nil {
			continue
		}
		if live := r.readRemovedNode(ctx, s, node, w.memberNameOf(machine)); live != nil {
			w.nodes[node.Name] = live
		} else {
			delete(w.nodes, node.Name)
		}
	}
	if w.standIn != nil {
		w.standIn = r.readRemovedNode(ctx, s, w.standIn, k3s.EtcdMemberName(w.standIn))
	}
}

// readRemovedNode is a Node as it is, nil when it is gone, if its member is gone and no record of that is known; else,
// and when no server tells, it is the given one. The next look comes through another server.
func (r *Reconciler) readRemovedNode(ctx context.Context, s *scope, node *corev1.Node, member string) *corev1.Node {
	if s.workload.member(member) != nil || !removalPending(node, member) {
		return node
	}
	var live *corev1.Node
	err := r.withNodes(ctx, s.cluster, func(nodes typedcorev1.NodeInterface) (err error) {
		live, err = nodes.Get(ctx, node.Name, metav1.GetOptions{})
		return err
	})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return node
	}
	return live
}

// removalPending says whether K3s was asked to remove the Node's member and hasn't recorded yet that it did.
func removalPending(node *corev1.Node, member string) bool {
	recorded := node.Annotations[k3s.EtcdRemovedNodeNameAnnotation]
	return node.Annotations[k3s.EtcdRemoveAnnotation] == "true" && (recorded == "" || recorded != member)
}

// withNodes has something done with the Nodes of a workload cluster over a connection of its own.
func (r *Reconciler) withNodes(ctx context.Context, cluster *clusterv1.Cluster, do func(typedcorev1.NodeInterface) error) error {
	config, err := r.ClusterCache.GetRESTConfig(ctx, client.ObjectKeyFromObject(cluster))
	if err != nil {
		return fmt.Errorf("connecting to Cluster %s: %w", cluster.Name, err)
	}
	config = rest.CopyConfig(config)
	config.Timeout = liveNodesTimeout
	// client-go shares the connections of all configurations that are alike, but for those with a proxy function.
	config.Proxy = http.ProxyFromEnvironment
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return fmt.Errorf("connecting to Cluster %s: %w", cluster.Name, err)
	}
	defer httpClient.CloseIdleConnections()
	clientset, err := kubernetes.NewForConfigAndClient(config, httpClient)
	if err != nil {
		return fmt.Errorf("connecting to Cluster %s: %w", cluster.Name, err)
	}
	return do(clientset.CoreV1().Nodes())
}

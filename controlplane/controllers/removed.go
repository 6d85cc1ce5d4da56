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
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capk3s/capk3s/pkg/k3s"
)

// liveNodeTimeout bounds the question to a server that may be the removed one, which accepts it and never answers.
const liveNodeTimeout = 5 * time.Second

// readRemovedNodes reads the Nodes anew whose etcd member is gone though the cache doesn't know yet that K3s has
// recorded it. The cache watches through one server, and one that left etcd keeps its watches open without ever
// sending anything: a cache that hangs on the removed server would never hear of the record.
func (r *Reconciler) readRemovedNodes(ctx context.Context, s *scope) {
	w := &s.workload
	if w.nodesErr != nil || w.membersErr != nil {
		return
	}
	for _, machine := range heldMachines(s) {
		node, member := w.nodeOf(machine), w.memberNameOf(machine)
		if node == nil || w.member(member) != nil || !removalPending(node, member) {
			continue
		}
		live, err := r.liveNode(ctx, s.cluster, node.Name)
		switch {
		case apierrors.IsNotFound(err):
			delete(w.nodes, node.Name)
		case err == nil:
			w.nodes[node.Name] = live
		}
		// After any other error the Node stays as the cache has it. The next look comes through another server.
	}
}

// removalPending says whether K3s was asked to remove the Node's member and hasn't recorded yet that it did.
func removalPending(node *corev1.Node, member string) bool {
	recorded := node.Annotations[k3s.EtcdRemovedNodeNameAnnotation]
	return node.Annotations[k3s.EtcdRemoveAnnotation] == "true" && (recorded == "" || recorded != member)
}

// liveNode reads a Node over a connection of its own.
func (r *Reconciler) liveNode(ctx context.Context, cluster *clusterv1.Cluster, name string) (*corev1.Node, error) {
	config, err := r.ClusterCache.GetRESTConfig(ctx, client.ObjectKeyFromObject(cluster))
	if err != nil {
		return nil, fmt.Errorf("connecting to Cluster %s: %w", cluster.Name, err)
	}
	config = rest.CopyConfig(config)
	config.Timeout = liveNodeTimeout
	// client-go shares the connections of all configurations that are alike, but for those with a proxy function.
	config.Proxy = http.ProxyFromEnvironment
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("connecting to Cluster %s: %w", cluster.Name, err)
	}
	defer httpClient.CloseIdleConnections()
	clientset, err := kubernetes.NewForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, fmt.Errorf("connecting to Cluster %s: %w", cluster.Name, err)
	}
	node, err := clientset.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading Node %s of Cluster %s: %w", name, cluster.Name, err)
	}
	return node, nil
}

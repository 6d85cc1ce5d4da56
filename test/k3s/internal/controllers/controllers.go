// Package controllers holds what K3s, and the parts of Kubernetes that the
// emulator leaves out, do through kube-apiserver.
package controllers

import (
	"context"
	"encoding/json"
	"os"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/capk3s/capk3s/test/k3s/internal/config"
	"github.com/capk3s/capk3s/test/k3s/internal/etcd"
)

// Labels of Nodes.
const (
	labelControlPlane = "node-role.kubernetes.io/control-plane"
	labelMaster       = "node-role.kubernetes.io/master"
	labelEtcd         = "node-role.kubernetes.io/etcd"
)

// Controllers are one server's controllers.
type Controllers struct {
	kube  kubernetes.Interface
	cfg   *config.Config
	etcd  *etcd.Server
	host  string
	nodes corelisters.NodeLister

	informer cache.SharedIndexInformer
	factory  informers.SharedInformerFactory
}

// New prepares the controllers with an administrator's client.
func New(kube kubernetes.Interface, cfg *config.Config, store *etcd.Server) (*Controllers, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	factory := informers.NewSharedInformerFactory(kube, 0)
	nodes := factory.Core().V1().Nodes()
	return &Controllers{
		kube: kube, cfg: cfg, etcd: store, host: host,
		nodes: nodes.Lister(), informer: nodes.Informer(), factory: factory,
	}, nil
}

// Start runs the controllers of this server, and takes part in the elections of
// those that run once in a cluster.
func (c *Controllers) Start(ctx context.Context) {
	c.factory.Start(ctx.Done())
	c.factory.WaitForCacheSync(ctx.Done())
	go c.publishAddress(ctx)
	go c.publishServingCertificate(ctx)
	go c.watchNodes(ctx, "control-plane-label", c.labelOwnNode)
	if c.etcd.Managed() {
		go c.watchNodes(ctx, "managed-etcd-metadata-controller", c.labelEtcdNode)
	}
	c.elect(ctx, "k3s", k3sTimes, func(ctx context.Context) {
		go c.watchNodes(ctx, "node", c.syncNode)
		c.collectPasswords(ctx)
	})
	c.elect(ctx, "kube-controller-manager", kubernetesTimes, c.followNodes)
	if c.etcd.Managed() {
		c.elect(ctx, "k3s-etcd", k3sTimes, func(ctx context.Context) {
			c.watchNodes(ctx, "managed-etcd-controller", c.syncMember)
		})
	}
}

// watchNodes calls sync for every Node that changes, again after an error, until
// the context ends.
func (c *Controllers) watchNodes(ctx context.Context, name string, sync func(context.Context, *corev1.Node) error) {
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](200*time.Millisecond, time.Minute))
	add := func(object any) {
		if node, ok := object.(*corev1.Node); ok {
			queue.Add(node.Name)
		}
	}
	registration, err := c.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    add,
		UpdateFunc: func(_, object any) { add(object) },
	})
	if err != nil {
		logrus.Errorf("Failed to watch nodes for %s: %v", name, err)
		return
	}
	go func() {
		<-ctx.Done()
		_ = c.informer.RemoveEventHandler(registration)
		queue.ShutDown()
	}()
	for {
		key, stop := queue.Get()
		if stop {
			return
		}
		if err := c.syncKey(ctx, key, sync); err != nil {
			if !apierrors.IsConflict(err) {
				logrus.Errorf("error syncing '%s': handler %s: %v, requeuing", key, name, err)
			}
			queue.AddRateLimited(key)
		} else {
			queue.Forget(key)
		}
		queue.Done(key)
	}
}

func (c *Controllers) syncKey(ctx context.Context, key string, sync func(context.Context, *corev1.Node) error) error {
	node, err := c.nodes.Get(key)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	return sync(ctx, node.DeepCopy())
}

// jsonPatch is one operation of a JSON patch.
type jsonPatch struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

func (c *Controllers) jsonPatch(ctx context.Context, node string, ops []jsonPatch) error {
	return c.patch(ctx, node, types.JSONPatchType, ops)
}

func (c *Controllers) patch(ctx context.Context, node string, kind types.PatchType, change any, subresources ...string) error {
	raw, err := json.Marshal(change)
	if err != nil {
		return err
	}
	_, err = c.kube.CoreV1().Nodes().Patch(ctx, node, kind, raw, metav1.PatchOptions{}, subresources...)
	return err
}

func (c *Controllers) update(ctx context.Context, node *corev1.Node) error {
	_, err := c.kube.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{})
	return err
}

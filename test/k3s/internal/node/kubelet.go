package node

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"time"

	"github.com/sirupsen/logrus"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/connrotation"
)

// The kubelet's defaults.
const (
	heartbeatInterval   = 10 * time.Second
	statusReportPeriod  = 5 * time.Minute
	leaseDuration       = 40
	requestTimeout      = 10 * time.Second
	registrationBackoff = time.Second
)

// Kubelet registers a Node and keeps it alive.
type Kubelet struct {
	spec   *Spec
	kube   kubernetes.Interface
	dialer *connrotation.Dialer
	// reported is when the status was last written.
	reported time.Time
}

// NewKubelet prepares a kubelet that talks to kube-apiserver as rest says.
func NewKubelet(spec *Spec, cfg *rest.Config) (*Kubelet, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.Timeout = requestTimeout
	// A server that is cut off leaves connections that never end; they are
	// dropped when a heartbeat fails.
	dialer := connrotation.NewDialer((&net.Dialer{Timeout: requestTimeout, KeepAlive: 15 * time.Second}).DialContext)
	cfg.Dial = dialer.DialContext
	kube, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("kubelet client: %w", err)
	}
	return &Kubelet{spec: spec, kube: kube, dialer: dialer}, nil
}

// Register creates the Node, or takes up the one that is there, and returns
// when that has worked.
func (k *Kubelet) Register(ctx context.Context) error {
	for {
		err := k.register(ctx)
		if err == nil {
			logrus.Infof("Successfully registered node %s", k.spec.Name)
			return nil
		}
		logrus.Infof("Unable to register node %s with API server: %v", k.spec.Name, err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(registrationBackoff):
		}
	}
}

func (k *Kubelet) register(ctx context.Context) error {
	nodes := k.kube.CoreV1().Nodes()
	_, err := nodes.Create(ctx, k.spec.object(), metav1.CreateOptions{})
	switch {
	case err == nil:
	case apierrors.IsAlreadyExists(err):
		if err := k.patch(ctx, map[string]any{"metadata": map[string]any{"labels": k.spec.defaultLabels()}}); err != nil {
			return err
		}
		if err := k.reportStatus(ctx); err != nil {
			return err
		}
	default:
		return err
	}
	k.reported = time.Now()
	return k.patch(ctx, map[string]any{"metadata": map[string]any{"annotations": k.spec.Annotations}})
}

func (k *Kubelet) patch(ctx context.Context, change map[string]any, subresources ...string) error {
	raw, err := json.Marshal(change)
	if err != nil {
		return err
	}
	_, err = k.kube.CoreV1().Nodes().Patch(ctx, k.spec.Name, types.StrategicMergePatchType, raw, metav1.PatchOptions{}, subresources...)
	return err
}

// Run sends heartbeats until the context ends. A Node that was deleted isn't
// made again: a kubelet doesn't either.
func (k *Kubelet) Run(ctx context.Context) {
	ticker := time.NewTicker(heartbeatInterval)
	defer ticker.Stop()
	for {
		if err := k.heartbeat(ctx); err != nil && ctx.Err() == nil {
			logrus.Errorf("Error updating node status of %s, will retry: %v", k.spec.Name, err)
			k.dialer.CloseAll()
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (k *Kubelet) heartbeat(ctx context.Context) error {
	node, err := k.kube.CoreV1().Nodes().Get(ctx, k.spec.Name, metav1.GetOptions{ResourceVersion: "0"})
	if err != nil {
		return err
	}
	if err := k.renewLease(ctx, node); err != nil {
		return err
	}
	if isReady(node) && time.Since(k.reported) < statusReportPeriod {
		return nil
	}
	return k.reportStatus(ctx)
}

// reportStatus writes the conditions and what else the kubelet owns of the
// status; conditions of others stay.
func (k *Kubelet) reportStatus(ctx context.Context) error {
	node, err := k.kube.CoreV1().Nodes().Get(ctx, k.spec.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	status := k.spec.status()
	for i := range status.Conditions {
		for _, old := range node.Status.Conditions {
			if old.Type == status.Conditions[i].Type && old.Status == status.Conditions[i].Status {
				status.Conditions[i].LastTransitionTime = old.LastTransitionTime
			}
		}
	}
	if err := k.patch(ctx, map[string]any{"status": status}, "status"); err != nil {
		return err
	}
	k.reported = time.Now()
	return nil
}

func isReady(node *corev1.Node) bool {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

func (k *Kubelet) renewLease(ctx context.Context, node *corev1.Node) error {
	leases := k.kube.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	now := metav1.NowMicro()
	lease, err := leases.Get(ctx, k.spec.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		seconds := int32(leaseDuration)
		_, err = leases.Create(ctx, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{
				Name: k.spec.Name, Namespace: corev1.NamespaceNodeLease,
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}},
			},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: &k.spec.Name, LeaseDurationSeconds: &seconds, RenewTime: &now},
		}, metav1.CreateOptions{})
		return err
	}
	if err != nil {
		return err
	}
	lease.Spec.RenewTime = &now
	_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	return err
}

package controllers

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capk3s/capk3s/test/k3s/internal/version"
)

// Annotations that tell which member runs on a Node, and that ask for its
// removal.
const (
	annotationNodeName    = "etcd.k3s.cattle.io/node-name"
	annotationNodeAddress = "etcd.k3s.cattle.io/node-address"
	annotationRemove      = "etcd.k3s.cattle.io/remove"
	annotationRemoved     = "etcd.k3s.cattle.io/removed-node-name"
)

// The same as JSON pointers.
const (
	pointerNodeName    = "/metadata/annotations/etcd.k3s.cattle.io~1node-name"
	pointerNodeAddress = "/metadata/annotations/etcd.k3s.cattle.io~1node-address"
	pointerRemove      = "/metadata/annotations/etcd.k3s.cattle.io~1remove"
	pointerRemoved     = "/metadata/annotations/etcd.k3s.cattle.io~1removed-node-name"
	pointerEtcdLabel   = "/metadata/labels/node-role.kubernetes.io~1etcd"
)

// labelOwnNode marks this server's Node as part of the control plane. K3s up to
// 1.33 says `master` too.
func (c *Controllers) labelOwnNode(ctx context.Context, node *corev1.Node) error {
	if node.Name != c.cfg.NodeName || c.cfg.Server.Control.DisableAgent {
		return nil
	}
	labels := map[string]string{labelControlPlane: "true"}
	if version.Minor(version.Current()) <= 33 {
		labels[labelMaster] = "true"
	}
	missing := false
	for key, value := range labels {
		missing = missing || node.Labels[key] != value
	}
	if !missing {
		return nil
	}
	return c.patch(ctx, node.Name, types.StrategicMergePatchType, map[string]any{"metadata": map[string]any{"labels": labels}})
}

// labelEtcdNode names this server's member on its Node. K3s uses a JSON patch,
// which fails on a Node without any labels or annotations.
func (c *Controllers) labelEtcdNode(ctx context.Context, node *corev1.Node) error {
	if node.Name != c.cfg.NodeName || node.DeletionTimestamp != nil {
		return nil
	}
	name, address := c.etcd.Name(), c.etcd.Address()
	if node.Annotations[annotationRemoved] == name && node.Annotations[annotationNodeName] == "" {
		// The member was removed, and its process hasn't ended yet.
		return nil
	}
	if node.Labels[labelEtcd] == "true" && node.Annotations[annotationNodeName] == name && node.Annotations[annotationNodeAddress] == address {
		return nil
	}
	return c.jsonPatch(ctx, node.Name, []jsonPatch{
		{Op: "add", Path: pointerEtcdLabel, Value: "true"},
		{Op: "add", Path: pointerNodeName, Value: name},
		{Op: "add", Path: pointerNodeAddress, Value: address},
	})
}

package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sirupsen/logrus"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	corev1 "k8s.io/api/core/v1"
)

// The finalizers that K3s puts on every Node.
const (
	finalizerNode = "wrangler.cattle.io/node"
	finalizerEtcd = "wrangler.cattle.io/managed-etcd-controller"
)

// syncNode keeps one finalizer on every Node; there is nothing to be done when
// a Node goes.
func (c *Controllers) syncNode(ctx context.Context, node *corev1.Node) error {
	if node.DeletionTimestamp == nil {
		return c.addFinalizer(ctx, node, finalizerNode)
	}
	return c.dropFinalizer(ctx, node, finalizerNode)
}

// syncMember removes etcd members: when an annotation asks for it, and before
// their Node goes.
func (c *Controllers) syncMember(ctx context.Context, node *corev1.Node) error {
	if node.DeletionTimestamp != nil {
		if !slices.Contains(node.Finalizers, finalizerEtcd) {
			return nil
		}
		if err := c.removeWithNode(ctx, node); err != nil {
			return err
		}
		return c.dropFinalizer(ctx, node, finalizerEtcd)
	}
	if !slices.Contains(node.Finalizers, finalizerEtcd) {
		return c.addFinalizer(ctx, node, finalizerEtcd)
	}
	return c.removeOnRequest(ctx, node)
}

func (c *Controllers) removeOnRequest(ctx context.Context, node *corev1.Node) error {
	requested, asked := node.Annotations[annotationRemove]
	if _, isEtcd := node.Labels[labelEtcd]; !isEtcd || !asked {
		return nil
	}
	name, address, err := member(node)
	if removed, done := node.Annotations[annotationRemoved]; done {
		if err != nil || removed == name {
			return nil
		}
		logrus.Infof("Resetting removed node flag as removed node name does not match current node name")
		return c.jsonPatch(ctx, node.Name, []jsonPatch{{Op: "remove", Path: pointerRemoved}, {Op: "remove", Path: pointerRemove}})
	}
	if strings.ToLower(requested) != "true" {
		return nil
	}
	if err != nil {
		return err
	}
	logrus.Infof("Removing etcd member from cluster due to remove annotation: name=%s address=%s", name, address)
	err = c.etcd.RemovePeer(ctx, name, address)
	if errors.Is(err, rpctypes.ErrMemberNotEnoughStarted) {
		logrus.Errorf("etcd member removal rejected, clearing remove annotation: %v", err)
		return c.jsonPatch(ctx, node.Name, []jsonPatch{{Op: "remove", Path: pointerRemove}})
	}
	if err != nil {
		return err
	}
	logrus.Infof("etcd emember removed successfully")
	return c.jsonPatch(ctx, node.Name, []jsonPatch{
		{Op: "add", Path: pointerRemoved, Value: name},
		{Op: "remove", Path: pointerRemove},
		{Op: "remove", Path: pointerNodeName},
		{Op: "remove", Path: pointerNodeAddress},
	})
}

// removeWithNode lets a deleted Node go only without its member.
func (c *Controllers) removeWithNode(ctx context.Context, node *corev1.Node) error {
	if _, isEtcd := node.Labels[labelEtcd]; !isEtcd {
		return nil
	}
	if removed := node.Annotations[annotationRemoved]; removed != "" {
		logrus.Infof("etcd member %s was already removed as member name %s via annotation from the cluster", node.Name, removed)
		return nil
	}
	name, address, err := member(node)
	if err != nil {
		return err
	}
	logrus.Infof("Removing etcd member %s from cluster due to node delete", name)
	return c.etcd.RemovePeer(ctx, name, address)
}

// member is the etcd member that a Node names.
func member(node *corev1.Node) (name, address string, err error) {
	name, found := node.Annotations[annotationNodeName]
	if !found {
		return "", "", fmt.Errorf("node name annotation for node %s not found", node.Name)
	}
	address, found = node.Annotations[annotationNodeAddress]
	if !found {
		return "", "", fmt.Errorf("node address annotation for node %s not found", node.Name)
	}
	return name, address, nil
}

func (c *Controllers) addFinalizer(ctx context.Context, node *corev1.Node, name string) error {
	if slices.Contains(node.Finalizers, name) {
		return nil
	}
	node.Finalizers = append(node.Finalizers, name)
	return c.update(ctx, node)
}

func (c *Controllers) dropFinalizer(ctx context.Context, node *corev1.Node, name string) error {
	i := slices.Index(node.Finalizers, name)
	if i < 0 {
		return nil
	}
	node.Finalizers = slices.Delete(node.Finalizers, i, i+1)
	return c.update(ctx, node)
}

package controllers

import (
	"context"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/capk3s/capk3s/test/k3s/internal/nodepassword"
)

const (
	passwordInterval = 5 * time.Second
	// orphanAge is how long a password without a Node is kept.
	orphanAge = 10 * time.Minute
)

// collectPasswords ties the Secrets of node passwords to their Nodes, and
// deletes them with the Nodes.
func (c *Controllers) collectPasswords(ctx context.Context) {
	ticker := time.NewTicker(passwordInterval)
	defer ticker.Stop()
	for {
		if err := c.collectOnce(ctx); err != nil && ctx.Err() == nil {
			logrus.Errorf("Failed to collect node passwords: %v", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (c *Controllers) collectOnce(ctx context.Context) error {
	nodes, err := c.nodes.List(labels.Everything())
	if err != nil {
		return err
	}
	client := c.kube.CoreV1().Secrets(metav1.NamespaceSystem)
	secrets, err := client.List(ctx, metav1.ListOptions{
		FieldSelector: "type=" + string(nodepassword.SecretType), ResourceVersion: "0",
	})
	if err != nil {
		return err
	}
	for i := range secrets.Items {
		secret := &secrets.Items[i]
		owner := ownerOf(secret, nodes)
		switch {
		case gone(secret.OwnerReferences, nodes), owner == nil && time.Since(secret.CreationTimestamp.Time) > orphanAge:
			err = client.Delete(ctx, secret.Name, metav1.DeleteOptions{})
		case owner != nil && len(secret.OwnerReferences) == 0:
			secret.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: owner.Name, UID: owner.UID}}
			_, err = client.Update(ctx, secret, metav1.UpdateOptions{})
		}
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return err
		}
	}
	return nil
}

func ownerOf(secret *corev1.Secret, nodes []*corev1.Node) *corev1.Node {
	for _, node := range nodes {
		if secret.Name == nodepassword.SecretName(strings.ToLower(node.Name)) {
			return node
		}
	}
	return nil
}

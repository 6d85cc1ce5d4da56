package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
	"github.com/capk3s/capk3s/pkg/k3s"
)

// goal is the cluster that the demo waits for; it has two workers.
type goal struct{ servers int32 }

// reached says what is missing, from the Nodes, etcd and the control plane's
// status; nothing more than the goal may be there either.
func (g goal) reached(ctx context.Context, d *demo) (string, error) {
	if err := d.open(ctx); err != nil {
		return "", err
	}
	nodes, err := d.workload.Nodes(ctx)
	if err != nil {
		return "", errors.New("the workload API doesn't answer yet")
	}
	var servers, agents int32
	for _, node := range nodes {
		ready := k3s.NodeReady(&node) == "True"
		switch {
		case ready && k3s.IsControlPlaneNode(&node):
			servers++
		case ready:
			agents++
		}
	}
	members, err := d.workload.Members(ctx)
	if err != nil {
		return "", errors.New("etcd doesn't answer yet")
	}
	var voters int32
	for _, member := range members {
		if member.Started() && !member.IsLearner {
			voters++
		}
	}
	if servers != g.servers || agents != workers || len(nodes) != int(g.servers)+workers || voters != g.servers || len(members) != int(g.servers) {
		return fmt.Sprintf("%d of %d servers and %d of %d workers Ready, %d Nodes, %d etcd voters, %d members",
			servers, g.servers, agents, workers, len(nodes), voters, len(members)), nil
	}
	controlPlane := &controlplanev1.KThreesControlPlane{}
	if err := d.get(ctx, controlPlane); err != nil {
		return "", err
	}
	status := controlPlane.Status
	if ptr.Deref(status.Replicas, 0) != g.servers || ptr.Deref(status.ReadyReplicas, 0) != g.servers {
		return fmt.Sprintf("%d of %d Machines of the control plane are Ready", ptr.Deref(status.ReadyReplicas, 0), ptr.Deref(status.Replicas, 0)), nil
	}
	return "", nil
}

// checkToken makes sure that the token's Secret has one controller, the control
// plane, and the value that it had when it was first seen.
func (d *demo) checkToken(ctx context.Context) error {
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: name, Name: name + "-token"}
	if err := d.management.Client.Get(ctx, key, secret); err != nil {
		return fmt.Errorf("reading the token's Secret: %w", err)
	}
	var keepers []string
	for _, reference := range secret.OwnerReferences {
		if ptr.Deref(reference.Controller, false) {
			keepers = append(keepers, reference.Kind)
		}
	}
	if len(keepers) != 1 || keepers[0] != "KThreesControlPlane" {
		return fmt.Errorf("the token's Secret is controlled by %v, want one KThreesControlPlane", keepers)
	}
	digest := sha256.Sum256(secret.Data["value"])
	short := hex.EncodeToString(digest[:6])
	if d.digest == "" {
		d.digest = short
	}
	if d.digest != short {
		return errors.New("the token has changed")
	}
	d.detail("token: controlled by %s %s alone, digest of its value %s", keepers[0], secret.OwnerReferences[0].Name, short)
	return nil
}

//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
	"github.com/capk3s/capk3s/test/world"
)

// others are the management clusters besides the shared one.
var others struct {
	sync.Mutex
	started []*world.Management
}

// startManagement starts the nth management cluster of the world, the shared one being the first.
func startManagement(t *testing.T, n int, name string) *world.Management {
	t.Helper()
	m, err := here.StartManagement(t.Context(), world.ManagementOptions{Name: name, Address: world.ManagementAddress(n)})
	require.NoError(t, err)
	t.Cleanup(m.Stop)
	listenTo(t, m)
	others.Lock()
	defer others.Unlock()
	others.started = append(others.started, m)
	return m
}

// keepsakes are what a cluster must still be after it came to another management cluster.
type keepsakes struct {
	// secrets are the data of the token and the CAs.
	secrets map[string]map[string][]byte
	// names are those of all Secrets.
	names []string
	// machines are the names of all Machines, each with its provider ID and Node.
	machines map[string]string
	// nodes are the names of all Nodes with their UIDs: a server that founds or joins anew has another one.
	nodes map[string]types.UID
}

// keepsakes are taken from a cluster at rest.
func (c *cluster) keepsakes() keepsakes {
	c.t.Helper()
	k := keepsakes{secrets: map[string]map[string][]byte{}, machines: map[string]string{}, nodes: map[string]types.UID{}}
	for _, suffix := range []string{"token", "root", "ca", "cca", "etcd", "etcd-peer", "proxy", "sa"} {
		k.secrets[c.name+"-"+suffix] = c.secret(c.name + "-" + suffix).Data
	}
	secrets := &corev1.SecretList{}
	require.NoError(c.t, c.at.Client.List(context.Background(), secrets, client.InNamespace(c.namespace)))
	for i := range secrets.Items {
		k.names = append(k.names, secrets.Items[i].Name)
	}
	for _, machine := range c.machines() {
		k.machines[machine.Name] = machine.Spec.ProviderID + " " + machine.Status.NodeRef.Name
	}
	nodes, _, err := c.nodesAndMembers(context.Background())
	require.NoError(c.t, err)
	for i := range nodes {
		k.nodes[nodes[i].Name] = nodes[i].UID
	}
	return k
}

func (c *cluster) secret(name string) *corev1.Secret {
	c.t.Helper()
	secret := &corev1.Secret{}
	require.NoError(c.t, c.at.Client.Get(context.Background(), client.ObjectKey{Namespace: c.namespace, Name: name}, secret))
	return secret
}

// requireKept checks that token and CAs are the same bytes and have one owner, that there are no other Secrets than
// before, and that the Machines and Nodes are the same.
func (c *cluster) requireKept(before keepsakes) {
	c.t.Helper()
	require.NoError(c.t, c.checkSecrets(context.Background(), before.secrets))
	after := c.keepsakes()
	assert.ElementsMatch(c.t, before.names, after.names)
	assert.Equal(c.t, before.machines, after.machines)
	assert.Equal(c.t, before.nodes, after.nodes)
}

// requireGrown checks that more servers and workers came beside those of before, with the same token and CAs.
func (c *cluster) requireGrown(before keepsakes) {
	c.t.Helper()
	require.NoError(c.t, c.checkSecrets(context.Background(), before.secrets))
	after := c.keepsakes()
	assert.Subset(c.t, after.machines, before.machines)
	assert.Subset(c.t, after.nodes, before.nodes)
}

// awaitOwned waits until the control plane at rest owns the token and the CAs, and every other Secret has its
// controller.
func (c *cluster) awaitOwned(before keepsakes) {
	c.t.Helper()
	c.eventually("all Secrets are owned", func(ctx context.Context) error {
		return errors.Join(c.checkSecrets(ctx, before.secrets), c.checkControllers(ctx))
	})
}

// checkControllers looks for the controller of each Secret, which can't have two: the control plane or a config that
// exists.
func (c *cluster) checkControllers(ctx context.Context) error {
	owners := map[types.UID]bool{c.controlPlane().UID: true}
	configs := &bootstrapv1.KThreesConfigList{}
	if err := c.at.Client.List(ctx, configs, client.InNamespace(c.namespace)); err != nil {
		return err
	}
	for i := range configs.Items {
		owners[configs.Items[i].UID] = true
	}
	secrets := &corev1.SecretList{}
	if err := c.at.Client.List(ctx, secrets, client.InNamespace(c.namespace)); err != nil {
		return err
	}
	for i := range secrets.Items {
		if owner := metav1.GetControllerOf(&secrets.Items[i]); owner == nil || !owners[owner.UID] {
			return fmt.Errorf("controller of Secret %s: %v", secrets.Items[i].Name, owner)
		}
	}
	return nil
}

// checkSecrets compares the data of Secrets with what they were, and looks for the control plane as the one owner.
func (c *cluster) checkSecrets(ctx context.Context, kept map[string]map[string][]byte) error {
	owner := c.controlPlane()
	for name, data := range kept {
		secret := &corev1.Secret{}
		if err := c.at.Client.Get(ctx, client.ObjectKey{Namespace: c.namespace, Name: name}, secret); err != nil {
			return err
		}
		// Another value is never put right by waiting. The values stay out of the log.
		require.Truef(c.t, maps.EqualFunc(data, secret.Data, bytes.Equal), "Secret %s is the same bytes", name)
		if len(secret.OwnerReferences) != 1 || !metav1.IsControlledBy(secret, owner) {
			return fmt.Errorf("owners of Secret %s: %v", name, secret.OwnerReferences)
		}
	}
	return nil
}

// awaitMovable waits for what clusterctl move asks for: a Node for every Machine.
func (c *cluster) awaitMovable() {
	c.t.Helper()
	c.eventually("every Machine has its Node", func(ctx context.Context) error {
		machines := &clusterv1.MachineList{}
		if err := c.at.Client.List(ctx, machines, client.InNamespace(c.namespace)); err != nil {
			return err
		}
		for _, machine := range machines.Items {
			if !machine.Status.NodeRef.IsDefined() {
				return fmt.Errorf("Machine %s has none", machine.Name)
			}
		}
		return nil
	})
}

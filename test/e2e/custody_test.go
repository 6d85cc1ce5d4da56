//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capk3s/capk3s/test/world"
)

// startManagement starts the nth management cluster of the world, the shared one being the first.
func startManagement(t *testing.T, n int, name string) *world.Management {
	t.Helper()
	m, err := here.StartManagement(t.Context(), world.ManagementOptions{Name: name, Address: fmt.Sprintf("127.0.0.%d", n)})
	require.NoError(t, err)
	t.Cleanup(m.Stop)
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
}

// keepsakes are taken from a cluster at rest.
func (c *cluster) keepsakes() keepsakes {
	c.t.Helper()
	k := keepsakes{secrets: map[string]map[string][]byte{}, machines: map[string]string{}}
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
	return k
}

func (c *cluster) secret(name string) *corev1.Secret {
	c.t.Helper()
	secret := &corev1.Secret{}
	require.NoError(c.t, c.at.Client.Get(context.Background(), client.ObjectKey{Namespace: c.namespace, Name: name}, secret))
	return secret
}

// requireKept checks that token and CAs are the same bytes and have one owner, that there are no other Secrets than
// before, and that the Machines are the same.
func (c *cluster) requireKept(before keepsakes) {
	c.t.Helper()
	owner := c.controlPlane()
	for name, data := range before.secrets {
		secret := c.secret(name)
		// The values stay out of the log.
		require.True(c.t, maps.EqualFunc(data, secret.Data, bytes.Equal), "%s is the same bytes", name)
		require.Len(c.t, secret.OwnerReferences, 1, name)
		require.True(c.t, metav1.IsControlledBy(secret, owner), name)
	}
	after := c.keepsakes()
	assert.ElementsMatch(c.t, before.names, after.names)
	assert.Equal(c.t, before.machines, after.machines)
}

// awaitOwned waits until the control plane at rest owns the token and the CAs.
func (c *cluster) awaitOwned(before keepsakes) {
	c.t.Helper()
	c.eventually("token and CAs are owned", func(context.Context) error {
		owner := c.controlPlane()
		for name := range before.secrets {
			if !metav1.IsControlledBy(c.secret(name), owner) {
				return fmt.Errorf("secret %s is not owned by the control plane", name)
			}
		}
		return nil
	})
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

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capk3s/capk3s/test/world"
)

// TestClusterctl_ManagesTheOperatorUnderALivingCluster upgrades, removes and installs the operator with clusterctl in a
// management cluster of its own. The workload cluster must not notice.
func TestClusterctl_ManagesTheOperatorUnderALivingCluster(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	at := startManagement(t, 3, "clusterctl")
	c := newClusterAt(t, at, "clusterctl", version, 1, 1)
	c.awaitSettled(1, 1)
	token, servers := c.tokenSecret().Data["value"], c.serverNames()
	clusterctl := func(args ...string) string {
		out, err := at.Clusterctl(ctx, args...)
		require.NoError(t, err)
		return out
	}

	step := func(name string, do func(*testing.T)) {
		t.Run(name, func(t *testing.T) {
			c.t = t
			do(t)
		})
		c.t = t
	}

	// grow has workers join, beside the same server and with the same token.
	grow := func(workers int32) {
		c.scale(1, workers)
		c.awaitSettled(1, int(workers))
		require.Equal(c.t, servers, c.serverNames())
		c.requireCustody(token)
	}

	step("get kubeconfig prints the one that we keep", func(t *testing.T) {
		secret := &corev1.Secret{}
		require.NoError(t, at.Client.Get(ctx, client.ObjectKey{Namespace: c.namespace, Name: c.name + "-kubeconfig"}, secret))
		got := clusterctl("get", "kubeconfig", c.name, "--namespace", c.namespace)
		require.True(t, strings.TrimSpace(got) == strings.TrimSpace(string(secret.Data["value"])), "the same kubeconfig")
	})
	step("describe shows the control plane", func(t *testing.T) {
		out := clusterctl("describe", "cluster", c.name, "--namespace", c.namespace, "--show-conditions", "all")
		assert.Contains(t, out, "KThreesControlPlane "+c.namespace+"/"+c.name)
		assert.Regexp(t, "TokenAvailable +True", out)
	})
	step("restarts of the workers while the control plane scales leave the token alone", func(*testing.T) {
		for _, want := range []struct{ servers, workers int32 }{{3, 2}, {1, 1}} {
			old := slices.Collect(maps.Keys(c.workers()))
			c.scale(want.servers, want.workers)
			clusterctl("alpha", "rollout", "restart", "machinedeployment/"+c.name, "--namespace", c.namespace)
			c.awaitReplaced(old)
			c.requireCustody(token)
			c.awaitSettled(int(want.servers), int(want.workers))
			c.requireCustody(token)
		}
		c.requireQuorumAllAlong()
		servers = c.serverNames()
	})
	step("upgrade replaces no machine, and new ones join", func(t *testing.T) {
		require.Equal(t, 2, strings.Count(clusterctl("upgrade", "plan"), world.NextOperatorVersion), "both providers can be upgraded")
		clusterctl("upgrade", "apply", "--contract=v1beta2")
		requireImage(t, at, world.NextOperatorVersion)
		require.NoError(t, at.StartOperator(ctx))
		grow(2)
	})
	step("delete and init again lose nothing", func(t *testing.T) {
		for _, pod := range at.Operator() {
			pod.Stop()
		}
		clusterctl("delete", "--bootstrap=k3s", "--control-plane=k3s")
		c.requireCustody(token)
		clusterctl("init", "--bootstrap=k3s:"+world.OperatorVersion, "--control-plane=k3s:"+world.OperatorVersion)
		requireImage(t, at, world.OperatorVersion)
		require.NoError(t, at.StartOperator(ctx))
		grow(3)
	})
}

// awaitReplaced waits until there are workers, and none of the old ones.
func (c *cluster) awaitReplaced(old []string) {
	c.t.Helper()
	c.eventually("new workers", func(context.Context) error {
		now := c.workers()
		for _, name := range old {
			if now[name] != "" {
				return fmt.Errorf("worker %s is still there", name)
			}
		}
		if len(now) == 0 {
			return fmt.Errorf("there is none")
		}
		return nil
	})
}

// serverNames are the names of the servers' Machines.
func (c *cluster) serverNames() []string {
	c.t.Helper()
	var names []string
	for _, server := range c.servers() {
		names = append(names, server.Name)
	}
	return names
}

// requireImage checks the version of the operator's Deployments.
func requireImage(t *testing.T, at *world.Management, version string) {
	t.Helper()
	for _, provider := range []string{"bootstrap", "control-plane"} {
		deployments := &appsv1.DeploymentList{}
		require.NoError(t, at.Client.List(context.Background(), deployments, client.InNamespace(fmt.Sprintf("capi-k3s-%s-system", provider))))
		require.Len(t, deployments.Items, 1)
		require.Contains(t, deployments.Items[0].Spec.Template.Spec.Containers[0].Image, ":"+version)
	}
}

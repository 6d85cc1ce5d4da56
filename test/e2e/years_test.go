//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capk3s/capk3s/test/chaos"
)

// The versions that a cluster is taken through: a build that semantic versioning can't tell from the first, the next
// minor, and another build.
const (
	version134      = "v1.34.2+k3s1"
	version134Build = "v1.34.2+k3s2"
	version135      = "v1.35.1+k3s1"
	version135Build = "v1.35.1+k3s2"
)

// TestControlPlane_LivesThroughTheYears takes one cluster through what befalls clusters for years: upgrades, and a
// server that dies. A client writes through the endpoint all the time.
func TestControlPlane_LivesThroughTheYears(t *testing.T) {
	t.Parallel()
	c := newClusterAt(t, management, "years", version134, 1, 1)
	now := chaos.Cluster{Servers: 1, Workers: 1, Version: version134}
	c.awaitSpec(now)
	token := c.tokenSecret().Data["value"]

	t.Run("the only server is upgraded to a build that semver can't see", func(t *testing.T) {
		c.t = t
		most, fewest := c.throughout(token, func() { c.upgradeServers(version134Build) })
		assert.Equal(t, 2, most, "servers at most")
		assert.Equal(t, 1, fewest)
	})
	t.Run("three servers are upgraded to the next minor, one more at a time, and the workers after", func(t *testing.T) {
		c.t = t
		c.scale(3, 1)
		c.awaitSettled(3, 1)
		now = chaos.Cluster{Servers: 3, Workers: 1, Version: version135}
		most, fewest := c.throughout(token, func() {
			c.upgradeServers(version135)
			c.upgradeWorkers(version135)
			c.awaitSpec(now)
		})
		assert.Equal(t, 4, most, "servers at most, with maxSurge 1")
		assert.Equal(t, 3, fewest)
	})
	t.Run("three servers are upgraded to the next build, one less at a time", func(t *testing.T) {
		c.t = t
		c.patch(c.controlPlane(), `{"spec":{"rollout":{"strategy":{"rollingUpdate":{"maxSurge":0}}}}}`)
		most, fewest := c.throughout(token, func() { c.upgradeServers(version135Build) })
		assert.Equal(t, 3, most, "servers at most, with maxSurge 0")
		assert.Equal(t, 2, fewest)
	})
	t.Run("a server that dies is replaced, and its member leaves etcd first", func(t *testing.T) {
		c.t = t
		c.checkHealth(context.Background())
		c.replaceDeadServer(token, 3)
	})
}

// throughout does something while a client writes and a witness looks on. Afterwards no acknowledged write may be
// lost, no server may have lost the quorum, etcd may never have had two changes at once, and the token is the same.
func (c *cluster) throughout(token []byte, do func()) (most, fewest int) {
	c.t.Helper()
	stopWriter, stopWitness := c.startWriter(), c.startWitness(token)
	from := len(c.etcdEvents())
	do()
	most, fewest = stopWitness()
	c.requireWritten(stopWriter())
	c.requireQuorumAllAlong()
	c.requireOneMemberAtATime(c.etcdEvents()[from:])
	c.requireCustody(token)
	return most, fewest
}

// upgradeServers changes the version of the control plane and waits until all servers have it. The workers aren't
// touched meanwhile.
func (c *cluster) upgradeServers(to string) {
	c.t.Helper()
	before := c.workers()
	c.patch(c.controlPlane(), fmt.Sprintf(`{"spec":{"version":%q}}`, to))
	c.awaitServers(chaos.Cluster{Servers: int(*c.controlPlane().Spec.Replicas), Version: to})
	require.Equal(c.t, before, c.workers())
}

// awaitServers waits until the status has the servers that are wanted.
func (c *cluster) awaitServers(want chaos.Cluster) {
	c.t.Helper()
	c.eventually("servers of "+want.Version, func(ctx context.Context) error { return c.checkStatus(ctx, want) })
}

func (c *cluster) upgradeWorkers(to string) {
	c.t.Helper()
	c.patch(get(c, &clusterv1.MachineDeployment{}), fmt.Sprintf(`{"spec":{"template":{"spec":{"version":%q}}}}`, to))
}

// workers are the names and versions of the workers' Machines.
func (c *cluster) workers() map[string]string {
	c.t.Helper()
	found := map[string]string{}
	for _, machine := range c.machines() {
		if !isServer(&machine) {
			found[machine.Name] = machine.Spec.Version
		}
	}
	return found
}

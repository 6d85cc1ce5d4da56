//go:build e2e

package e2e

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
	"github.com/capk3s/capk3s/test/chaos"
	"github.com/capk3s/capk3s/test/world"
)

// The default seed's operations are of eight kinds, and each program is killed. It has no upgrade, which takes long.
var (
	chaosOperations = flag.Int("chaos.operations", 10, "number of operations of the chaos run")
	chaosSeed       = flag.Uint64("chaos.seed", 192, "seed of the chaos run; 0 for a random one")
)

// TestChaos_ClusterIsWhatItIsWantedToBeAfterEachOperation has random operations befall a cluster and its management
// cluster. Each has to end in what the spec says, with all that can't be lost as it was.
func TestChaos_ClusterIsWhatItIsWantedToBeAfterEachOperation(t *testing.T) {
	t.Parallel()
	seed := *chaosSeed
	if seed == 0 {
		seed = rand.Uint64() //nolint:gosec // it is printed
	}
	t.Logf("SEED=%d OPS=%d", seed, *chaosOperations)
	random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // repeatable

	now := chaos.Cluster{Servers: 3, Workers: 1, Version: version134}
	c := newClusterAt(t, startManagement(t, 4, "chaos"), "chaos", now.Version, int32(now.Servers), int32(now.Workers)) //nolint:gosec // small
	c.checkHealth(context.Background())
	c.awaitSpec(now)
	kept := c.keepsakes().secrets
	checks := c.requireInvariants(kept)

	kinds := map[chaos.Kind]int{}
	var taken []string
	for i := range *chaosOperations {
		operation := chaos.Next(now, random)
		t.Logf("operation %d: %s", i+1, operation)
		kinds[operation.Kind]++
		if operation.Pause > 0 {
			taken = append(taken, c.servers()[operation.Server].Name)
		}
		c.perform(operation)
		now = operation.Want
		c.awaitSpec(now)
		checks += c.requireInvariants(kept)
		c.requireQuorumAllAlong(taken...)
		checks++
	}
	t.Logf("%d operations %v, %d checks of invariants", *chaosOperations, kinds, checks)
}

// perform does an operation and waits until its effect is certain to have begun.
func (c *cluster) perform(o chaos.Operation) {
	c.t.Helper()
	ctx := context.Background()
	begun, ended := c.begin(ctx, o)
	begun()
	if o.Crash != "" {
		time.Sleep(o.After) // a part of the operation, like the pause of a server
		for _, process := range c.programOf(o.Crash) {
			require.NoErrorf(c.t, process.Crash(ctx), "killing %s", process.Name)
		}
	}
	ended()
}

// begin returns what an operation does at once and what it does, or waits for, after the crash of a program.
func (c *cluster) begin(ctx context.Context, o chaos.Operation) (begun, ended func()) {
	nothing := func() {}
	switch o.Kind {
	case chaos.Scale:
		return func() { c.scale(int32(o.Want.Servers), int32(o.Want.Workers)) }, nothing //nolint:gosec // small
	case chaos.Upgrade:
		return func() { c.patch(c.controlPlane(), fmt.Sprintf(`{"spec":{"version":%q}}`, o.Want.Version)) }, func() {
			c.awaitServers(o.Want)
			c.upgradeWorkers(o.Want.Version)
		}
	case chaos.KillServer:
		name := c.servers()[o.Server].Name
		return func() { c.killServer(name) }, func() { c.awaitMachineGone(name) }
	case chaos.DeleteServer:
		server := c.servers()[o.Server]
		return func() { require.NoError(c.t, c.at.Client.Delete(ctx, &server)) }, func() { c.awaitMachineGone(server.Name) }
	case chaos.DeleteConfig:
		server := c.servers()[o.Server]
		config := &bootstrapv1.KThreesConfig{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: server.Spec.Bootstrap.ConfigRef.Name}}
		return func() {
				require.NoError(c.t, c.at.Client.Delete(ctx, config))
				require.NoError(c.t, c.at.Client.Delete(ctx, &server))
			}, func() {
				c.awaitMachineGone(server.Name)
			}
	case chaos.FreezeServer, chaos.CutServer:
		return func() { c.pauseServer(ctx, o) }, nothing
	case chaos.DeleteToken:
		return func() { require.NoError(c.t, c.at.Client.Delete(ctx, c.tokenSecret())) }, nothing
	case chaos.StripReferences:
		return func() { c.patch(c.tokenSecret(), `{"metadata":{"ownerReferences":null}}`) }, nothing
	case chaos.CorruptReferences:
		return func() {
			c.patch(c.tokenSecret(), `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"nobody","uid":"nobody"}]}}`)
		}, nothing
	case chaos.Crash:
		return nothing, nothing
	}
	c.t.Fatalf("operation %s isn't known", o.Kind)
	return nil, nil
}

// pauseServer takes a server away for a while.
func (c *cluster) pauseServer(ctx context.Context, o chaos.Operation) {
	c.t.Helper()
	machine, err := c.at.Host.Open(c.namespace, c.servers()[o.Server].Name)
	require.NoError(c.t, err)
	away, back := machine.Freeze, machine.Thaw
	if o.Kind == chaos.CutServer {
		away, back = machine.Cut, machine.Join
	}
	require.NoError(c.t, away(ctx))
	time.Sleep(o.Pause)
	require.NoError(c.t, back(ctx))
}

// programOf is the processes of a program; the operator has one a provider.
func (c *cluster) programOf(program chaos.Program) []*world.Process {
	return map[chaos.Program][]*world.Process{
		chaos.Operator:  {c.at.Bootstrap.Process, c.at.ControlPlane.Process},
		chaos.APIServer: {c.at.APIServer}, chaos.Core: {c.at.Core},
	}[program]
}

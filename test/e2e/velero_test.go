//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capk3s/capk3s/test/world"
)

// What docs/custody.md has users apply, for the namespace of the test.
const (
	backup = `apiVersion: velero.io/v1
kind: Backup
metadata: {namespace: velero, name: %[1]s}
spec: {includedNamespaces: [%[1]s], snapshotVolumes: false}
`
	restore = `apiVersion: velero.io/v1
kind: Restore
metadata: {namespace: velero, name: %[1]s}
spec: {backupName: %[1]s, includedNamespaces: [%[1]s]}
`
)

// TestVelero_RestoresAClusterThatGrowsOn loses a management cluster while the servers of a cluster live on, and
// restores the cluster with Velero into an empty one in which the operator runs already.
func TestVelero_RestoresAClusterThatGrowsOn(t *testing.T) {
	t.Parallel()
	lost, empty := startManagement(t, 5, "velero-lost"), startManagement(t, 6, "velero-new")
	c := newClusterAt(t, lost, "velero", version, 1, 1)
	c.awaitSettled(1, 1)
	c.awaitMovable()
	before := c.keepsakes()
	c.velero(lost, "Backup", backup)
	lost.Stop() // two operators must not manage the same machines

	c.at = empty
	c.velero(c.at, "Restore", restore)
	c.awaitSettled(1, 1)
	c.awaitMovable()
	c.awaitOwned(before)
	c.requireKept(before)
	c.scale(3, 2)
	c.awaitSettled(3, 2)
	c.awaitMovable()
	c.requireGrown(before)
}

// velero has Velero's server do a backup or restore of the cluster's namespace.
func (c *cluster) velero(at *world.Management, kind, manifest string) {
	c.t.Helper()
	server, err := at.StartVelero(c.t.Context())
	require.NoError(c.t, err)
	defer server.Stop()
	if kind == "Restore" {
		c.awaitPhase(at, "Backup") // the server finds it in the folder
	}
	require.NoError(c.t, at.Apply(c.t.Context(), fmt.Appendf(nil, manifest, c.namespace)))
	c.awaitPhase(at, kind)
}

// awaitPhase waits until a backup or restore is complete.
func (c *cluster) awaitPhase(at *world.Management, kind string) {
	c.t.Helper()
	c.eventually("Velero's "+kind, func(ctx context.Context) error {
		phase, err := at.VeleroPhase(ctx, kind, c.namespace)
		if err == nil && strings.Contains(phase, "Failed") {
			out, err := at.Kubectl(ctx, "describe", "-n", "velero", strings.ToLower(kind)+"s.velero.io")
			require.Failf(c.t, phase, "%s\n%v", out, err)
		}
		if err == nil && phase != "Completed" {
			err = fmt.Errorf("phase %q", phase)
		}
		return err
	})
}

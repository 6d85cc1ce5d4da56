//go:build e2e

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	// settle is the time after which a cluster at rest has nothing left to do.
	settle = 30 * time.Second

	// idle is how long nothing may happen.
	idle = 2 * time.Minute
)

// requireIdle watches the operator for two minutes while all clusters are settled. One of them is reconciled meanwhile,
// with nothing to do.
func (c *cluster) requireIdle() {
	c.t.Helper()
	c.awaitQuiet()
	// The supervisor's client closes a connection that wasn't used for 90 seconds. After a reconcile it has one that
	// the next finds open.
	c.awaitReconcile()

	from, keys, connections := time.Now(), c.metric("capk3s_keys_generated_total"), c.operatorConnections()
	c.awaitReconcile()
	opened := map[string]bool{}
	for end := from.Add(idle); time.Now().Before(end); time.Sleep(time.Second) {
		for connection := range c.operatorConnections() {
			if !connections[connection] {
				opened[connection] = true
			}
		}
	}
	assert.Empty(c.t, c.operatorRequests(from, "create", "update", "patch", "delete"), "write requests")
	assert.Empty(c.t, opened, "new connections")
	assert.InDelta(c.t, keys, c.metric("capk3s_keys_generated_total"), 0, "keys")
}

// awaitReconcile has the control plane reconciled without a reason, and waits until it was.
func (c *cluster) awaitReconcile() {
	c.t.Helper()
	reconciled := func() float64 {
		return c.metric(`controller_runtime_reconcile_total{controller="kthreescontrolplane"`)
	}
	before := reconciled()
	// Another value each time: a patch that changes nothing is no event.
	c.patch(c.controlPlane(), fmt.Sprintf(`{"metadata":{"annotations":{"test":%q}}}`, time.Now().Format(time.RFC3339Nano)))
	c.eventually("a reconcile", func(context.Context) error {
		if reconciled() == before {
			return fmt.Errorf("there was none")
		}
		return nil
	})
}

// awaitQuiet waits until the operator has written nothing for a while.
func (c *cluster) awaitQuiet() {
	c.t.Helper()
	c.eventually("the operator to come to rest", func(context.Context) error {
		if writes := c.operatorRequests(time.Now().Add(-settle), "create", "update", "patch", "delete"); len(writes) > 0 {
			return fmt.Errorf("it still writes: %v", writes)
		}
		return nil
	})
}

// operatorRequests reads the audit log for the operator's requests since a time, as "verb resource/name". The lease of
// the active manager, which is renewed all the time, and what a reader of the metrics causes don't count.
func (c *cluster) operatorRequests(since time.Time, verbs ...string) []string {
	c.t.Helper()
	log, err := c.at.ReadAuditLog()
	require.NoError(c.t, err)
	users := map[string]bool{}
	for _, pod := range c.at.Operator() {
		users[pod.User] = true
	}
	var requests []string
	for _, request := range log {
		if users[request.User.Username] && request.Received.After(since) && slices.Contains(verbs, request.Verb) &&
			!slices.Contains([]string{"leases", "tokenreviews", "subjectaccessreviews"}, request.Object.Resource) {
			requests = append(requests, request.Verb+" "+request.Object.Resource+"/"+request.Object.Name)
		}
	}
	return requests
}

// metric reads one of the control plane provider's metrics, or with the begin of its labels some of its series: their
// sum; 0 when it has no value yet.
func (c *cluster) metric(name string) float64 {
	c.t.Helper()
	metrics, err := c.at.Metrics(context.Background(), c.at.ControlPlane)
	require.NoError(c.t, err)
	sum, found := 0.0, false
	lines := bufio.NewScanner(bytes.NewReader(metrics))
	for lines.Scan() {
		series, value, ok := strings.Cut(lines.Text(), " ")
		if !ok || (series != name && !strings.HasPrefix(series, name+"{") && !strings.HasPrefix(series, name+",")) {
			continue
		}
		number, err := strconv.ParseFloat(value, 64)
		require.NoError(c.t, err)
		sum, found = sum+number, true
	}
	require.Truef(c.t, found, "the operator has a metric %s", name)
	return sum
}

// operatorConnections are the operator's outgoing connections: local and remote address. Connections to its own
// metrics and probes aren't its doing.
func (c *cluster) operatorConnections() map[string]bool {
	c.t.Helper()
	connections := map[string]bool{}
	for _, pod := range c.at.Operator() {
		maps.Copy(connections, connectionsOf(c.t, pod.PID()))
	}
	return connections
}

func connectionsOf(t testing.TB, pid int) map[string]bool {
	t.Helper()
	inodes := map[string]bool{}
	links, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	require.NoError(t, err)
	for _, link := range links {
		// A descriptor that was closed meanwhile has no target.
		target, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", pid, link.Name()))
		if inode, ok := strings.CutPrefix(target, "socket:["); ok {
			inodes[strings.TrimSuffix(inode, "]")] = true
		}
	}
	connections := map[string]bool{}
	for _, table := range []string{"tcp", "tcp6"} {
		content, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, table))
		require.NoError(t, err)
		for _, line := range strings.Split(string(content), "\n")[1:] {
			fields := strings.Fields(line)
			// 01 is an established connection; 6443 is the port of every API server and supervisor here.
			if len(fields) > 9 && fields[3] == "01" && inodes[fields[9]] && strings.HasSuffix(fields[2], fmt.Sprintf(":%04X", 6443)) {
				connections[fields[1]+">"+fields[2]] = true
			}
		}
	}
	return connections
}

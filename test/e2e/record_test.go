//go:build e2e

package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// etcdEvent is a line of the record that each server keeps of its etcd.
type etcdEvent struct {
	Time   time.Time `json:"time"`
	Member string    `json:"member"`
	Event  string    `json:"event"`
	Target string    `json:"target"`
	// TargetID is there from the beginning, unlike the name.
	TargetID uint64   `json:"targetID"`
	Voters   []string `json:"voters"`
}

// etcdEvents reads the records of all servers that the cluster ever had, in the order of time.
func (c *cluster) etcdEvents() []etcdEvent {
	c.t.Helper()
	files, err := filepath.Glob(filepath.Join(c.at.Host.LogDir, c.namespace+"_*", "k3s", "etcd-members.jsonl"))
	require.NoError(c.t, err)
	require.NotEmpty(c.t, files)
	var events []etcdEvent
	for _, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(c.t, err)
		lines := bufio.NewScanner(bytes.NewReader(content))
		for lines.Scan() {
			var event etcdEvent
			require.NoError(c.t, json.Unmarshal(lines.Bytes(), &event))
			events = append(events, event)
		}
	}
	slices.SortFunc(events, func(a, b etcdEvent) int { return a.Time.Compare(b.Time) })
	return events
}

// requireQuorumAllAlong checks that no server saw the quorum lost while it was a voter, but for the Machines that a
// test took off the network or froze itself. A learner has no part in the quorum, and sees none until it reaches the
// voters.
func (c *cluster) requireQuorumAllAlong(taken ...string) {
	c.t.Helper()
	removed := map[string]bool{}
	changes := 0
	for _, event := range c.etcdEvents() {
		switch event.Event {
		case "remove":
			removed[event.Target] = true
			changes++
		case "add-learner", "promote":
			changes++
		case "quorum-lost":
			wasTaken := slices.ContainsFunc(taken, func(name string) bool { return strings.HasPrefix(event.Member, name+"-") })
			isVoter := slices.Contains(event.Voters, event.Member)
			assert.Truef(c.t, removed[event.Member] || wasTaken || !isVoter, "member %s lost the quorum at %s", event.Member, event.Time)
		}
	}
	c.t.Logf("%d changes of etcd's members", changes)
	require.NotZero(c.t, changes)
}

// requireOneMemberAtATime checks that etcd was never changed while a learner was on its way: added, promoted and
// removed one after the other.
func (c *cluster) requireOneMemberAtATime(events []etcdEvent) {
	c.t.Helper()
	learner, changes := uint64(0), 0
	for _, event := range events {
		switch event.Event {
		case "add-learner":
			assert.Zerof(c.t, learner, "%s joined at %s while another one was a learner", event.Target, event.Time)
			require.NotZero(c.t, event.TargetID)
			learner = event.TargetID
		case "promote", "evict-learner":
			assert.Equalf(c.t, learner, event.TargetID, "%s of %s at %s", event.Event, event.Target, event.Time)
			learner = 0
		case "remove":
			assert.Zerof(c.t, learner, "%s left at %s while there was a learner", event.Target, event.Time)
		default:
			continue
		}
		changes++
	}
	require.NotZero(c.t, changes)
	assert.Zero(c.t, learner, "every learner was promoted")
}

// requireNothingLeft checks that the namespace holds nothing of the cluster, and that none of its machines runs.
func (c *cluster) requireNothingLeft() {
	c.t.Helper()
	assert.Empty(c.t, c.objectsLeft())
	machines, err := c.at.Host.List()
	require.NoError(c.t, err)
	for _, machine := range machines {
		assert.NotEqual(c.t, c.namespace, machine.Namespace(), "machine %s is still there", machine.Name())
	}
	assert.Empty(c.t, c.processes())
}

// objectsLeft names what the namespace holds of the cluster.
func (c *cluster) objectsLeft() []string {
	c.t.Helper()
	out, err := c.at.Kubectl(c.t.Context(), "get", "-n", c.namespace, "-o", "name", "--ignore-not-found",
		"secrets,configmaps,clusters.cluster.x-k8s.io,machines,machinesets,machinedeployments,kthreescontrolplanes,kthreesconfigs,"+
			"kthreesconfigtemplates,sandboxclusters,sandboxmachines,sandboxmachinetemplates")
	require.NoError(c.t, err)
	var left []string
	for _, name := range strings.Fields(out) {
		// Kubernetes' own.
		if name != "configmap/kube-root-ca.crt" {
			left = append(left, name)
		}
	}
	return left
}

// processes are the command lines of processes that belong to a machine of the cluster.
func (c *cluster) processes() []string {
	c.t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(c.t, err)
	var found []string
	for _, file := range files {
		// A process that ended meanwhile has no command line.
		content, _ := os.ReadFile(file)
		if bytes.Contains(content, []byte(c.namespace+"_")) {
			found = append(found, strings.ReplaceAll(string(content), "\x00", " "))
		}
	}
	return found
}

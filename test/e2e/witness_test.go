//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"sync"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
	"github.com/capk3s/capk3s/pkg/k3s"
)

// witness sees every version of a cluster's control plane, of its servers' Machines and of its token.
type witness struct {
	token []byte
	// servers are the Machines that exist, with whether they are being deleted.
	servers map[string]bool
	// most and fewest are the numbers of servers that were seen at once.
	most, fewest int
	seen         int
	faults       []string
}

// startWitness begins to watch; the function that it returns ends that, checks that nothing was ever wrong, and says
// how many servers there were at most and at least.
func (c *cluster) startWitness(token []byte) (stop func() (most, fewest int)) {
	c.t.Helper()
	w := &witness{token: token, servers: map[string]bool{}}
	for _, machine := range c.servers() {
		w.servers[machine.Name] = false
	}
	w.most, w.fewest = len(w.servers), len(w.servers)
	ctx, cancel := context.WithCancel(context.Background())
	events, done := make(chan watch.Event), sync.WaitGroup{}
	for _, list := range []client.ObjectList{&controlplanev1.KThreesControlPlaneList{}, &clusterv1.MachineList{}, &corev1.SecretList{}} {
		watcher, err := c.at.Client.Watch(ctx, list, client.InNamespace(c.namespace))
		require.NoError(c.t, err)
		done.Go(func() {
			defer watcher.Stop()
			for event := range watcher.ResultChan() {
				events <- event
			}
		})
	}
	go func() {
		done.Wait()
		close(events)
	}()
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		for event := range events {
			w.see(c, event)
		}
	}()
	return func() (int, int) {
		assert.NoError(c.t, ctx.Err(), "watched to the end")
		cancel()
		<-finished
		c.t.Logf("%d changes seen; between %d and %d servers", w.seen, w.fewest, w.most)
		assert.NotZero(c.t, w.seen)
		assert.Empty(c.t, w.faults)
		return w.most, w.fewest
	}
}

func (w *witness) see(c *cluster, event watch.Event) {
	switch object := event.Object.(type) {
	case *controlplanev1.KThreesControlPlane:
		w.seen++
		w.seeVersions(object)
	case *clusterv1.Machine:
		if isServer(object) {
			w.seen++
			w.seeServer(event.Type, object)
		}
	case *corev1.Secret:
		if object.Name != c.name+"-token" {
			return
		}
		w.seen++
		if event.Type == watch.Deleted || string(object.Data["value"]) != string(w.token) {
			w.fault("the token was %s, and not what it had been", event.Type)
		}
	}
}

// seeVersions checks what Cluster API relies on: the versions of all servers, the lowest first.
func (w *witness) seeVersions(cp *controlplanev1.KThreesControlPlane) {
	versions, sum := cp.Status.Versions, int32(0)
	for i, version := range versions {
		sum += version.Replicas
		if i == 0 {
			continue
		}
		if order, err := k3s.Compare(versions[i-1].Version, version.Version); err != nil || order >= 0 {
			w.fault("versions %v are not in order: %v", versions, err)
		}
	}
	switch {
	case len(versions) == 0:
		w.fault("there were no versions")
	case cp.Status.Version != versions[0].Version:
		w.fault("version %s is not the first of %v", cp.Status.Version, versions)
	case sum != ptr.Deref(cp.Status.Replicas, 0):
		w.fault("versions %v are those of %d servers, there are %d", versions, sum, ptr.Deref(cp.Status.Replicas, 0))
	}
}

// seeServer counts the servers and checks that one at most is on its way out.
func (w *witness) seeServer(change watch.EventType, machine *clusterv1.Machine) {
	if change == watch.Deleted {
		delete(w.servers, machine.Name)
	} else {
		w.servers[machine.Name] = !machine.DeletionTimestamp.IsZero()
	}
	w.most, w.fewest = max(w.most, len(w.servers)), min(w.fewest, len(w.servers))
	deleting := 0
	for _, leaves := range w.servers {
		if leaves {
			deleting++
		}
	}
	if deleting > 1 {
		w.fault("%d servers were being deleted at once", deleting)
	}
}

func (w *witness) fault(format string, args ...any) {
	w.faults = append(w.faults, fmt.Sprintf(format, args...))
}

package custody

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// lag is how much later than everything else the operator sees what happens to Machines.
const lag = 2 * time.Second

// TestLag_NoServerIsMadeOrDeletedTwice runs an operator whose cache of Machines lags, while the events of other objects
// have it reconcile at once.
func TestLag_NoServerIsMadeOrDeletedTwice(t *testing.T) {
	startCore(t, env)
	run(t, newManagerWith(t, env, env.Config, "operator", func(o *cache.Options) { o.NewInformer = lagging(o.NewInformer) }))
	s := newStage(t)
	census := s.startCensus()
	s.await("the first server", func() {}, func() error { return s.settled(1, 0) })
	s.remember()
	s.scale(3)
	s.await("three servers", func() {}, func() error { return s.settled(3, 0) })
	s.scale(1)
	s.await("one server", func() {}, func() error { return s.settled(1, 0) })

	made, most, deletedAtOnce := census()
	assert.Equal(t, 3, made, "Machines that were ever made")
	assert.Equal(t, 3, most, "Machines at once")
	assert.Equal(t, 1, deletedAtOnce, "Machines that were being deleted at once")
	s.requireCustody()
}

// lagging makes informers of which those of Machines hear of changes later.
func lagging(informers toolsInformer) toolsInformer {
	return func(lw toolscache.ListerWatcher, object runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
		if _, ok := object.(*clusterv1.Machine); ok {
			lw = laggard{lw}
		}
		return informers(lw, object, resync, indexers)
	}
}

type toolsInformer = func(toolscache.ListerWatcher, runtime.Object, time.Duration, toolscache.Indexers) toolscache.SharedIndexInformer

type laggard struct{ toolscache.ListerWatcher }

// Watch passes every event on when it is old enough, in order.
func (l laggard) Watch(options metav1.ListOptions) (watch.Interface, error) {
	source, err := toolscache.ToListerWatcherWithContext(l.ListerWatcher).WatchWithContext(background, options)
	if err != nil {
		return nil, err
	}
	type dated struct {
		watch.Event
		due time.Time
	}
	waiting := make(chan dated, 10_000)
	go func() {
		defer close(waiting)
		for event := range source.ResultChan() {
			waiting <- dated{event, time.Now().Add(lag)}
		}
	}()
	out := make(chan watch.Event)
	late := watch.NewProxyWatcher(out)
	go func() {
		defer close(out)
		defer source.Stop()
		for event := range waiting {
			select {
			case <-time.After(time.Until(event.due)):
			case <-late.StopChan():
				return
			}
			select {
			case out <- event.Event:
			case <-late.StopChan():
				return
			}
		}
	}()
	return late, nil
}

// startCensus counts the stage's Machines. The function that it returns ends that and says how many were ever made,
// how many there were at once, and how many were being deleted at once, at most.
func (s *stage) startCensus() func() (made, most, deleted int) {
	s.Helper()
	ctx, cancel := context.WithCancel(background)
	watcher, err := s.env.Client.Watch(ctx, &clusterv1.MachineList{}, client.InNamespace(s.name))
	require.NoError(s, err)
	done := make(chan struct{})
	ever, there, leaving := sets.New[string](), sets.New[string](), sets.New[string]()
	most, deleted := 0, 0
	go func() {
		defer close(done)
		for event := range watcher.ResultChan() {
			machine, ok := event.Object.(*clusterv1.Machine)
			if !ok {
				continue
			}
			ever.Insert(machine.Name)
			there.Insert(machine.Name)
			if !machine.DeletionTimestamp.IsZero() {
				leaving.Insert(machine.Name)
			}
			if event.Type == watch.Deleted {
				there.Delete(machine.Name)
				leaving.Delete(machine.Name)
			}
			most, deleted = max(most, there.Len()), max(deleted, leaving.Len())
		}
	}()
	return func() (int, int, int) {
		cancel()
		watcher.Stop()
		<-done
		return ever.Len(), most, deleted
	}
}

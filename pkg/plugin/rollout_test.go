package plugin_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capk3s/capk3s/test/testenv"
)

// change is what the rollout commands print as JSON.
type change struct {
	Action, Kind, Namespace, Name, Field, Value, Note string
}

func TestRestart_SetsRolloutAfterToNow(t *testing.T) {
	for _, name := range []string{
		"c", "cluster/c", "kthreescontrolplane/c-control-plane", "k3cp/c-control-plane",
		"KThreesControlPlane.controlplane.cluster.x-k8s.io/c-control-plane",
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			before := time.Now().Truncate(time.Second)
			result, r := runJSON[change](t, f, "rollout", "restart", name)
			require.Zero(t, r.code, r.err)
			env.Refresh(t, f.controlPlane)
			after := f.controlPlane.Spec.Rollout.After
			assert.False(t, after.Time.Before(before) || after.After(time.Now()), "%s isn't now", after)
			assert.Equal(t, "spec.rollout.after", result.Field)
			assert.Equal(t, after.UTC().Format(time.RFC3339), result.Value)
			assert.Equal(t, "c-control-plane", result.Name)
		})
	}
}

func TestRestart_AgainSetsALaterTime(t *testing.T) {
	f := newFixture(t)
	f.controlPlane.Spec.Rollout.After = metav1.NewTime(time.Now().Add(-time.Hour))
	require.NoError(t, env.Client.Update(context.Background(), f.controlPlane))
	require.Zero(t, f.run(t, "rollout", "restart", "c").code)
	env.Refresh(t, f.controlPlane)
	assert.Less(t, time.Since(f.controlPlane.Spec.Rollout.After.Time), time.Minute)
}

func TestRestart_OfATopologyIsWrittenToTheCluster(t *testing.T) {
	f := newFixture(t, func(c *clusterv1.Cluster) {
		c.Spec.Topology = clusterv1.Topology{ClassRef: clusterv1.ClusterClassRef{Name: "class"}, Version: testenv.Version}
	})
	result, r := runJSON[change](t, f, "rollout", "restart", "c")
	require.Zero(t, r.code, r.err)
	assert.Equal(t, "Cluster", result.Kind)
	env.Refresh(t, f.cluster)
	env.Refresh(t, f.controlPlane)
	assert.False(t, f.cluster.Spec.Topology.ControlPlane.Rollout.After.IsZero())
	assert.True(t, f.controlPlane.Spec.Rollout.After.IsZero(), "the topology controller writes it")
}

func TestRestart_RefusesWhatWouldHaveNoEffect(t *testing.T) {
	cases := map[string]struct {
		change func(t *testing.T, f *fixture)
		says   []string
	}{
		"a paused control plane": {
			func(t *testing.T, f *fixture) { require.Zero(t, f.run(t, "rollout", "pause", "c").code) },
			[]string{"c-control-plane", "paused", "clusterctl k3s rollout resume"},
		},
		"a paused Cluster": {
			func(t *testing.T, f *fixture) {
				f.cluster.Spec.Paused = ptr.To(true)
				require.NoError(t, env.Client.Update(context.Background(), f.cluster))
			},
			[]string{"Cluster c", "spec.paused"},
		},
		"a rollout that is planned": {
			func(t *testing.T, f *fixture) {
				f.controlPlane.Spec.Rollout.After = metav1.NewTime(time.Now().Add(time.Hour))
				require.NoError(t, env.Client.Update(context.Background(), f.controlPlane))
			},
			[]string{"planned for", "rollout.after"},
		},
		"a control plane that is being deleted": {
			func(t *testing.T, f *fixture) {
				f.controlPlane.Finalizers = []string{"test/keep"}
				require.NoError(t, env.Client.Update(context.Background(), f.controlPlane))
				require.NoError(t, env.Client.Delete(context.Background(), f.controlPlane))
			},
			[]string{"being deleted"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			tc.change(t, f)
			env.Refresh(t, f.controlPlane)
			generation := f.controlPlane.Generation
			r := f.run(t, "rollout", "restart", "c")
			assert.Equal(t, 2, r.code)
			assert.Empty(t, r.out)
			for _, text := range tc.says {
				assert.Contains(t, r.err, text)
			}
			env.Refresh(t, f.controlPlane)
			assert.Equal(t, generation, f.controlPlane.Generation)
		})
	}
}

func TestPauseAndResume_KeepTheAnnotation(t *testing.T) {
	f := newFixture(t)
	r := f.run(t, "rollout", "pause", "kthreescontrolplane/c-control-plane")
	require.Zero(t, r.code, r.err)
	assert.Contains(t, r.out, clusterv1.PausedAnnotation+" set to true")
	env.Refresh(t, f.controlPlane)
	assert.Equal(t, "true", f.controlPlane.Annotations[clusterv1.PausedAnnotation])

	r = f.run(t, "rollout", "pause", "c")
	assert.Equal(t, 2, r.code)
	assert.Contains(t, r.err, "is paused already")

	r = f.run(t, "rollout", "resume", "c")
	require.Zero(t, r.code, r.err)
	assert.Contains(t, r.out, clusterv1.PausedAnnotation+" removed")
	env.Refresh(t, f.controlPlane)
	assert.NotContains(t, f.controlPlane.Annotations, clusterv1.PausedAnnotation)

	r = f.run(t, "rollout", "resume", "c")
	assert.Equal(t, 2, r.code)
	assert.Contains(t, r.err, "isn't paused")
}

func TestResume_SaysThatTheClusterIsPaused(t *testing.T) {
	f := newFixture(t, func(c *clusterv1.Cluster) { c.Spec.Paused = ptr.To(true) })
	r := f.run(t, "rollout", "resume", "c")
	assert.Equal(t, 2, r.code)
	assert.Contains(t, r.err, "Cluster c is: set spec.paused")

	require.Zero(t, f.run(t, "rollout", "pause", "c").code)
	r = f.run(t, "rollout", "resume", "c")
	require.Zero(t, r.code, r.err)
	assert.Contains(t, r.out, "Nothing happens yet")
}

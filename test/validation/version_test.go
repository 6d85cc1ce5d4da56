package validation

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

var (
	downgrade = refusal{"spec.version", "can't go down"}
	skip      = refusal{"spec.version", "one minor version at a time"}
)

// versionCases change the version of a control plane whose servers run the versions in running, lowest first.
var versionCases = []struct {
	name     string
	running  []string
	from, to string
	want     refusal
}{
	{"next build", nil, "v1.36.3+k3s1", "v1.36.3+k3s2", refusal{}},
	{"tenth build", nil, "v1.36.3+k3s9", "v1.36.3+k3s10", refusal{}},
	{"next patch", nil, "v1.36.9+k3s2", "v1.36.10+k3s1", refusal{}},
	{"next minor", nil, "v1.36.3+k3s2", "v1.37.0+k3s1", refusal{}},
	{"candidate to release", nil, "v1.37.0-rc10+k3s1", "v1.37.0+k3s1", refusal{}},
	{"candidate to next candidate", nil, "v1.37.0-rc9+k3s1", "v1.37.0-rc10+k3s1", refusal{}},
	{"second next minor", nil, "v1.35.3+k3s1", "v1.37.0+k3s1", skip},
	{"next major", nil, "v1.36.3+k3s1", "v2.0.0+k3s1", skip},
	{"previous build", nil, "v1.36.3+k3s2", "v1.36.3+k3s1", downgrade},
	{"previous patch", nil, "v1.36.10+k3s1", "v1.36.9+k3s1", downgrade},
	{"previous minor", nil, "v1.36.0+k3s1", "v1.35.9+k3s9", downgrade},
	{"release to candidate", nil, "v1.37.0+k3s1", "v1.37.0-rc1+k3s2", downgrade},

	{"back to what all servers run", []string{"v1.36.3+k3s1"}, "v1.36.99+k3s1", "v1.36.3+k3s1", refusal{}},
	{"back to less than the servers run", []string{"v1.36.3+k3s1"}, "v1.36.99+k3s1", "v1.36.2+k3s1", downgrade},
	{"back to less than one server runs", []string{"v1.36.3+k3s1", "v1.37.0+k3s1"}, "v1.37.1+k3s1", "v1.36.3+k3s1", downgrade},
	{"back to what the newest server runs", []string{"v1.36.3+k3s1", "v1.37.0+k3s1"}, "v1.37.1+k3s1", "v1.37.0+k3s1", refusal{}},
	{"up during an upgrade", []string{"v1.36.3+k3s1", "v1.37.0+k3s1"}, "v1.37.0+k3s1", "v1.38.0+k3s1", skip},
	{"patch during an upgrade", []string{"v1.36.3+k3s1", "v1.37.0+k3s1"}, "v1.37.0+k3s1", "v1.37.1+k3s1", refusal{}},
	{"up after an upgrade", []string{"v1.37.0+k3s1"}, "v1.37.0+k3s1", "v1.38.0+k3s1", refusal{}},
	{"unchanged", []string{"v1.30.0+k3s1"}, "v1.36.3+k3s1", "v1.36.3+k3s1", refusal{}},
	{"back with an unknown version", []string{"v1.36.3"}, "v1.36.99+k3s1", "v1.36.3+k3s1", downgrade},
}

func TestControlPlane_VersionGoesUpByOneMinor(t *testing.T) {
	namespace := env.Namespace(t)
	for _, c := range versionCases {
		t.Run(c.name, func(t *testing.T) {
			ctx := context.Background()
			obj := controlPlane(namespace)
			obj.Spec.Version = c.from
			require.NoError(t, env.Client.Create(ctx, obj))
			if len(c.running) > 0 {
				obj.Status.Version = c.running[0]
				for _, v := range c.running {
					obj.Status.Versions = append(obj.Status.Versions, clusterv1.StatusVersion{Version: v, Replicas: 1})
				}
				require.NoError(t, env.Client.Status().Update(ctx, obj), "the status may say whatever runs")
			}

			obj.Spec.Version = c.to
			obj.Labels = map[string]string{"changed": "true"}
			requireRefusal(t, c.want, env.Client.Update(ctx, obj))
		})
	}
}

func TestControlPlane_MalformedVersionIsNoDowngrade(t *testing.T) {
	obj := controlPlane(env.Namespace(t))
	require.NoError(t, env.Client.Create(context.Background(), obj))
	obj.Spec.Version = "v1.20.0"
	err := env.Client.Update(context.Background(), obj)
	requireRefusal(t, refusal{"spec.version", versionForm}, err)
	requireNoMention(t, downgrade.message, err)
	requireNoMention(t, skip.message, err)
}

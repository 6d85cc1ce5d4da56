package silence

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capk3s/capk3s/test/testenv"
)

var env *testenv.Env

func TestMain(m *testing.M) { testenv.Main(m, &env) }

// What was said once is found when nobody says it any more.
func TestWatch_HearsWhatObjectsSaidOnce(t *testing.T) {
	g := New()
	require.NoError(t, g.Watch(t.Context(), env.Config))
	ctx := context.Background()
	cluster := testenv.Cluster(env.Namespace(t), "c1")
	secret := testenv.Secret(cluster, "c1-token", map[string]string{"value": secretToken})
	event := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: cluster.Namespace, Name: "e1"},
		InvolvedObject: corev1.ObjectReference{Namespace: cluster.Namespace}, Message: "event: " + secretToken,
	}
	machine := testenv.Machine(cluster, "m1")
	env.Create(t, cluster, secret, event, machine)
	said := machine.DeepCopy()
	conditions.Set(said, metav1.Condition{Type: "Ready", Status: metav1.ConditionFalse, Reason: "Test", Message: "condition: " + secretToken})
	require.NoError(t, env.Client.Status().Patch(ctx, said, client.MergeFrom(machine)))
	require.NoError(t, env.Client.Status().Patch(ctx, machine, client.RawPatch("application/merge-patch+json", []byte(`{"status":null}`))))
	require.NoError(t, env.Client.Delete(ctx, secret))
	require.NoError(t, env.Client.Delete(ctx, event))

	require.Eventually(t, func() bool {
		report, err := g.Search()
		found := strings.Join(report.Found, "\n")
		return err == nil && strings.Contains(found, `after "event: "`) && strings.Contains(found, `after "condition: "`)
	}, 30*time.Second, 50*time.Millisecond)
	require.Equal(t, 1, g.Tokens())
}

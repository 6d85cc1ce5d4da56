package custody

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/core/setup"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
	bootstrapcontrollers "github.com/capk3s/capk3s/bootstrap/controllers"
	controlplanecontrollers "github.com/capk3s/capk3s/controlplane/controllers"
)

// operator is both providers, called step by step. Its processes die as the schedule says; each is followed by one
// that knows nothing.
type operator struct {
	*stage
	workloads clustercache.ClusterCache
	schedule  *schedule

	process      *process
	controlPlane reconcile.Reconciler
	configs      reconcile.Reconciler
	processes    int
}

func newOperator(s *stage, workloads clustercache.ClusterCache, faults *schedule) *operator {
	o := &operator{stage: s, workloads: workloads, schedule: faults}
	o.restart()
	return o
}

// restart starts a process.
func (o *operator) restart() {
	o.Helper()
	o.processes++
	o.process = &process{schedule: o.schedule}
	config := rest.CopyConfig(o.env.Config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &connection{process: o.process, next: next} })
	uncached, err := client.New(config, client.Options{Scheme: o.env.Scheme, Mapper: o.env.Client.RESTMapper()})
	require.NoError(o, err)
	recorder := &recorder{sink: spoken}
	mgr := newManagerWith(o, o.env, config, "operator")
	controlPlane := &controlplanecontrollers.Reconciler{
		Client: uncached, APIReader: uncached, ClusterCache: &silentSource{o.workloads}, Recorder: recorder,
	}
	require.NoError(o, controlPlane.SetupWithManager(background, mgr, controller.Options{}))
	o.controlPlane = controlPlane
	o.configs = &bootstrapcontrollers.Reconciler{Client: uncached, APIReader: uncached, Recorder: recorder}
}

// step reconciles everything once, in a new process if the last one has crashed.
func (o *operator) step() {
	o.Helper()
	if o.process.crashed() {
		o.restart()
	}
	o.reconcile(o.controlPlane, o.key())
	for _, config := range list(o.stage, &bootstrapv1.KThreesConfigList{}).Items {
		o.reconcile(o.configs, client.ObjectKeyFromObject(&config))
	}
}

// reconcile expects errors, since writes fail.
func (o *operator) reconcile(r reconcile.Reconciler, key client.ObjectKey) {
	if _, err := r.Reconcile(background, ctrl.Request{NamespacedName: key}); err != nil {
		spoken.add(err.Error())
	}
}

// silentSource is the access to workload clusters without its events, which nobody would take from a manager that
// isn't started.
type silentSource struct{ clustercache.ClusterCache }

// GetClusterSource returns a source without events.
func (s *silentSource) GetClusterSource(string, func(context.Context, client.Object) []ctrl.Request, ...clustercache.GetClusterSourceOption) source.Source {
	return source.Func(func(context.Context, workqueue.TypedRateLimitingInterface[ctrl.Request]) error { return nil })
}

// run starts both providers in a management cluster as their binary does, until the test ends.
func run(t testing.TB, mgr ctrl.Manager) {
	t.Helper()
	ctx, cancel := context.WithCancel(background)
	workloads, err := clustercache.SetupWithManager(ctx, mgr, clustercache.Options{
		SecretClient: mgr.GetClient(), Client: setup.ClusterCacheClientOptions("operator", 1000, 2000),
	},
		controller.Options{MaxConcurrentReconciles: concurrency})
	require.NoError(t, err)
	reconnectSoon(workloads)
	recorder := &recorder{sink: spoken}
	options := controller.Options{MaxConcurrentReconciles: concurrency}
	require.NoError(t, (&controlplanecontrollers.Reconciler{
		Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), ClusterCache: workloads, Recorder: recorder,
	}).SetupWithManager(ctx, mgr, options))
	require.NoError(t, (&bootstrapcontrollers.Reconciler{
		Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Recorder: recorder,
	}).SetupWithManager(ctx, mgr, options))
	start(t, ctx, cancel, mgr)
}

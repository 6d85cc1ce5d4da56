package custody

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/core/reconcilers/cluster"
	"sigs.k8s.io/cluster-api/core/reconcilers/machine"
	"sigs.k8s.io/cluster-api/core/setup"
	"sigs.k8s.io/cluster-api/util/index"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/capk3s/capk3s/test/testenv"
)

const (
	// reconnect is how soon a workload that didn't answer is tried again.
	reconnect = 300 * time.Millisecond

	// grace is how long a workload may be silent before Cluster API's conditions say so: longer than a test.
	grace = 10 * time.Minute

	concurrency = 10
)

// startCore runs Cluster API's Cluster and Machine controllers, the garbage collector and the pretended
// infrastructure in a management cluster until the test ends, and returns the access to the workload clusters.
func startCore(t testing.TB, management *testenv.Env) clustercache.ClusterCache {
	t.Helper()
	management.StartControllerManager(t)
	mgr := newManager(t, management, "core")
	ctx, cancel := context.WithCancel(background)
	require.NoError(t, index.AddDefaultIndexes(ctx, mgr))
	secrets, err := setup.CreateSecretCachingClient(mgr)
	require.NoError(t, err)
	workloads, err := clustercache.SetupWithManager(ctx, mgr, clustercache.Options{
		SecretClient: secrets,
		Cache:        setup.ClusterCacheCacheOptions(),
		Client:       setup.ClusterCacheClientOptions("core", 1000, 2000),
	}, controller.Options{MaxConcurrentReconciles: concurrency})
	require.NoError(t, err)
	reconnectSoon(workloads)

	options := controller.Options{MaxConcurrentReconciles: concurrency}
	require.NoError(t, (&cluster.Reconciler{
		Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), ClusterCache: workloads, RemoteConnectionGracePeriod: grace,
	}).SetupWithManager(ctx, mgr, options))
	require.NoError(t, (&machine.Reconciler{
		Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), ClusterCache: workloads, RemoteConditionsGracePeriod: grace,
	}).SetupWithManager(ctx, mgr, options))
	require.NoError(t, (&infrastructure{client: mgr.GetClient()}).setup(mgr))
	start(t, ctx, cancel, mgr)
	return workloads
}

func newManager(t testing.TB, management *testenv.Env, name string) ctrl.Manager {
	t.Helper()
	config := rest.CopyConfig(management.Config)
	return newManagerWith(t, management, config, name)
}

// managers counts those that were made.
var managers atomic.Int64

// newManagerWith makes a manager with the caches that Cluster API's managers have, but for the data of Secrets.
func newManagerWith(t testing.TB, management *testenv.Env, restConfig *rest.Config, name string, change ...func(*cache.Options)) ctrl.Manager {
	t.Helper()
	// Informers must have different names within a process.
	name = fmt.Sprintf("%s-%d", name, managers.Add(1))
	cacheOptions := setup.ManagerCacheOptions(management.Scheme, name, "", grace)
	for object, options := range cacheOptions.ByObject {
		options.Transform = nil
		cacheOptions.ByObject[object] = options
	}
	for _, f := range change {
		f(&cacheOptions)
	}
	skip := true
	mgr, err := ctrl.NewManager(restConfig, ctrl.Options{
		Scheme:     management.Scheme,
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: &skip},
		Cache:      cacheOptions,
		Client:     setup.ManagerClientOptions(),
	})
	require.NoError(t, err)
	return mgr
}

func reconnectSoon(workloads clustercache.ClusterCache) {
	workloads.(interface{ SetConnectionCreationRetryInterval(time.Duration) }).SetConnectionCreationRetryInterval(reconnect)
}

// start runs a manager until the test ends or the context does.
func start(t testing.TB, ctx context.Context, cancel func(), mgr ctrl.Manager) { //nolint:revive // t first, as everywhere in tests
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	require.True(t, mgr.GetCache().WaitForCacheSync(ctx))
}

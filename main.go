// The manager runs the bootstrap and control plane providers for K3s.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/component-base/logs"
	logsv1 "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/feature"
	capicontrollerutil "sigs.k8s.io/cluster-api/util/controller"
	"sigs.k8s.io/cluster-api/util/flags"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/healthz"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
	bootstrapcontrollers "github.com/capk3s/capk3s/bootstrap/controllers"
	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
	controlplanecontrollers "github.com/capk3s/capk3s/controlplane/controllers"
	"github.com/capk3s/capk3s/pkg/k3s"
)

// managerName names the program in logs, events and user agents.
const managerName = "capk3s-manager"

// connectRetry is how soon a workload cluster that didn't answer is tried again.
const connectRetry = 5 * time.Second

// options are the program's flags.
type options struct {
	controllers       []string
	leaderElect       bool
	leaderElectionID  string
	namespace         string
	watchFilter       string
	healthAddr        string
	concurrency       int
	clusterCacheQPS   float32
	clusterCacheBurst int
	syncPeriod        time.Duration
	qps               float32
	burst             int
	manager           flags.ManagerOptions
	logs              *logs.Options
}

const (
	bootstrapControllers    = "bootstrap"
	controlPlaneControllers = "controlplane"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run() error {
	opts, err := parseFlags(os.Args[1:])
	if err != nil {
		return err
	}
	if err := logsv1.ValidateAndApply(opts.logs, nil); err != nil {
		return fmt.Errorf("setting up logging: %w", err)
	}
	ctrl.SetLogger(klog.Background())
	ctx := ctrl.SetupSignalHandler()
	mgr, err := newManager(opts)
	if err != nil {
		return err
	}
	if err := addControllers(ctx, mgr, opts); err != nil {
		return err
	}
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("running the manager: %w", err)
	}
	return nil
}

func parseFlags(args []string) (*options, error) {
	o := &options{logs: logs.NewOptions()}
	fs := pflag.NewFlagSet(managerName, pflag.ContinueOnError)
	fs.StringSliceVar(&o.controllers, "controllers", []string{bootstrapControllers, controlPlaneControllers},
		"The providers to run: bootstrap, controlplane, or both.")
	fs.BoolVar(&o.leaderElect, "leader-elect", false, "Let one of several managers be active.")
	fs.StringVar(&o.leaderElectionID, "leader-election-id", "controller-leader-election-capk3s", "The name of the lease of the leader.")
	fs.StringVar(&o.namespace, "namespace", "", "The namespace to watch. Empty: all namespaces.")
	fs.StringVar(&o.watchFilter, "watch-filter", "", "Reconcile only objects with this value of the label "+clusterv1.WatchLabel+". Empty: all objects.")
	fs.StringVar(&o.healthAddr, "health-addr", ":9440", "The address of the health probes.")
	fs.IntVar(&o.concurrency, "concurrency", 10, "The number of objects of a kind that are reconciled at once.")
	fs.Float32Var(&o.clusterCacheQPS, "clustercache-client-qps", 20, "Queries per second to each workload cluster.")
	fs.IntVar(&o.clusterCacheBurst, "clustercache-client-burst", 30, "Burst of queries to each workload cluster.")
	fs.DurationVar(&o.syncPeriod, "sync-period", 10*time.Minute, "The period after which all objects are reconciled again.")
	fs.Float32Var(&o.qps, "kube-api-qps", 100, "Queries per second to the management cluster.")
	fs.IntVar(&o.burst, "kube-api-burst", 200, "Burst of queries to the management cluster.")
	flags.AddManagerOptions(fs, &o.manager)
	feature.MutableGates.AddFlag(fs)
	logsv1.AddFlags(o.logs, fs)
	// controller-runtime registers --kubeconfig with the standard library's flags.
	fs.AddGoFlagSet(flag.CommandLine)
	if err := fs.Parse(args); err != nil {
		return nil, fmt.Errorf("parsing flags: %w", err)
	}
	for _, name := range o.controllers {
		if name != bootstrapControllers && name != controlPlaneControllers {
			return nil, fmt.Errorf("--controllers: %q is unknown; use %s or %s", name, bootstrapControllers, controlPlaneControllers)
		}
	}
	return o, nil
}

func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, clusterv1.AddToScheme,
		bootstrapv1.AddToScheme, controlplanev1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("registering types: %w", err)
		}
	}
	return scheme, nil
}

func newManager(o *options) (ctrl.Manager, error) {
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	tlsOptions, metrics, err := flags.GetManagerOptions(o.manager)
	if err != nil {
		return nil, fmt.Errorf("reading the manager's options: %w", err)
	}
	_ = tlsOptions // the manager serves no webhook
	labelled, err := labels.NewRequirement(clusterv1.ClusterNameLabel, selection.Exists, nil)
	if err != nil {
		return nil, fmt.Errorf("selecting Secrets: %w", err)
	}
	config := ctrl.GetConfigOrDie()
	config.QPS, config.Burst, config.UserAgent = o.qps, o.burst, managerName
	cacheOptions := cache.Options{
		SyncPeriod: &o.syncPeriod,
		// Thousands of foreign Secrets shall cost no memory.
		ByObject:    map[client.Object]cache.ByObject{&corev1.Secret{}: {Label: labels.NewSelector().Add(*labelled)}},
		NewInformer: capicontrollerutil.NewInformerFunc(scheme, managerName),
	}
	if o.namespace != "" {
		cacheOptions.DefaultNamespaces = map[string]cache.Config{o.namespace: {}}
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:                     scheme,
		LeaderElection:             o.leaderElect,
		LeaderElectionID:           o.leaderElectionID,
		LeaderElectionResourceLock: "leases",
		HealthProbeBindAddress:     o.healthAddr,
		Metrics:                    *metrics,
		Cache:                      cacheOptions,
		Client: client.Options{Cache: &client.CacheOptions{
			DisableFor: []client.Object{&corev1.ConfigMap{}},
			// Infrastructure machines and templates are only known as unstructured objects.
			Unstructured: true,
		}},
	})
	if err != nil {
		return nil, fmt.Errorf("making the manager: %w", err)
	}
	for _, add := range []func(string, healthz.Checker) error{mgr.AddHealthzCheck, mgr.AddReadyzCheck} {
		if err := add("ping", healthz.Ping); err != nil {
			return nil, fmt.Errorf("adding the health probes: %w", err)
		}
	}
	return mgr, nil
}

func addControllers(ctx context.Context, mgr ctrl.Manager, o *options) error {
	controllerOptions := controller.Options{MaxConcurrentReconciles: o.concurrency}
	if slices.Contains(o.controllers, bootstrapControllers) {
		err := (&bootstrapcontrollers.Reconciler{
			Client:           mgr.GetClient(),
			APIReader:        mgr.GetAPIReader(),
			Recorder:         mgr.GetEventRecorder("kthreesconfig"),
			WatchFilterValue: o.watchFilter,
		}).SetupWithManager(ctx, mgr, controllerOptions)
		if err != nil {
			return fmt.Errorf("adding the bootstrap provider: %w", err)
		}
	}
	if !slices.Contains(o.controllers, controlPlaneControllers) {
		return nil
	}
	clusterCache, err := newClusterCache(ctx, mgr, o)
	if err != nil {
		return err
	}
	err = (&controlplanecontrollers.Reconciler{
		Client:           mgr.GetClient(),
		APIReader:        mgr.GetAPIReader(),
		ClusterCache:     clusterCache,
		Recorder:         mgr.GetEventRecorder("kthreescontrolplane"),
		WatchFilterValue: o.watchFilter,
	}).SetupWithManager(ctx, mgr, controllerOptions)
	if err != nil {
		return fmt.Errorf("adding the control plane provider: %w", err)
	}
	return nil
}

// newClusterCache gives access to the workload clusters of K3s control planes. It caches only the Nodes of servers.
func newClusterCache(ctx context.Context, mgr ctrl.Manager, o *options) (clustercache.ClusterCache, error) {
	servers, err := labels.NewRequirement(k3s.ControlPlaneLabel, selection.Exists, nil)
	if err != nil {
		return nil, fmt.Errorf("selecting Nodes: %w", err)
	}
	clusterCache, err := clustercache.SetupWithManager(ctx, mgr, clustercache.Options{
		SecretClient:     mgr.GetClient(),
		WatchFilterValue: o.watchFilter,
		ClusterFilter: func(cluster *clusterv1.Cluster) bool {
			ref := cluster.Spec.ControlPlaneRef
			return ref.APIGroup == controlplanev1.GroupVersion.Group && ref.Kind == "KThreesControlPlane"
		},
		Cache: clustercache.CacheOptions{
			DefaultTransform: cache.TransformStripManagedFields(),
			ByObject:         map[client.Object]cache.ByObject{&corev1.Node{}: {Label: labels.NewSelector().Add(*servers)}},
		},
		Client: clustercache.ClientOptions{QPS: o.clusterCacheQPS, Burst: o.clusterCacheBurst, UserAgent: managerName},
	}, controller.Options{MaxConcurrentReconciles: 10 * o.concurrency})
	if err != nil {
		return nil, fmt.Errorf("setting up access to workload clusters: %w", err)
	}
	// The default of 30 s would leave a control plane that has just come up unseen for as long.
	if c, ok := clusterCache.(interface{ SetConnectionCreationRetryInterval(time.Duration) }); ok {
		c.SetConnectionCreationRetryInterval(connectRetry)
	}
	return clusterCache, nil
}

// Command sandbox-manager is the sandbox infrastructure provider. It runs in a
// test world, as root of that world, next to the machines that it makes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	infrav1 "github.com/capk3s/capk3s/test/sandbox/api/v1beta1"
	"github.com/capk3s/capk3s/test/sandbox/controllers"
	"github.com/capk3s/capk3s/test/sandbox/machine"
)

func main() {
	if err := run(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, "sandbox-manager:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	host := &machine.Host{}
	cluster := &controllers.Cluster{}
	// "kubeconfig" comes from controller-runtime; so does $KUBECONFIG.
	flag.StringVar(&host.Dir, "dir", "/run/world/machines", "folder for the machines")
	flag.StringVar(&host.LogDir, "log-dir", "/run/world/logs/machines", "folder for the machines' logs")
	flag.StringVar(&host.BinDir, "bin-dir", "", "folder of the test programs")
	flag.StringVar(&host.AssetsDir, "assets-dir", "", "folder with a kube-apiserver and kubectl that go before those in bin-dir")
	flag.StringVar(&host.K3sBinary, "k3s-binary", "", "real K3s binary that servers run instead of the emulator")
	flag.StringVar(&host.Bridge, "bridge", "br0", "bridge that machines are plugged into")
	flag.DurationVar(&host.RestartDelay, "restart-delay", 0, "takes the place of every unit's RestartSec if not zero")
	flag.TextVar(&host.Subnet, "subnet", netip.Prefix{}, "the bridge's network")
	flag.TextVar(&cluster.Endpoints, "endpoints", netip.Prefix{}, "part of the subnet that endpoints are taken from")
	versions := flag.String("k3s-versions", "", "shell patterns of the K3s versions that exist, separated by commas")
	health := flag.String("health-addr", "0", "address of the readiness probe; 0 for none")
	flag.Parse()
	if *versions != "" {
		host.Versions = strings.Split(*versions, ",")
	}
	cluster.Bridge = host.Bridge
	ctrl.SetLogger(zap.New())

	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, clusterv1.AddToScheme, infrav1.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("finding the management cluster: %w", err)
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{Scheme: scheme, Metrics: server.Options{BindAddress: "0"}, HealthProbeBindAddress: *health})
	if err != nil {
		return fmt.Errorf("connecting to the management cluster: %w", err)
	}
	cluster.Client = mgr.GetClient()
	if err := cluster.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("setting up SandboxClusters: %w", err)
	}
	machines := &controllers.Machine{Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Host: host}
	if err := machines.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("setting up SandboxMachines: %w", err)
	}
	synced := func(request *http.Request) error {
		if !mgr.GetCache().WaitForCacheSync(request.Context()) {
			return errors.New("the cache isn't filled yet")
		}
		return nil
	}
	if err := mgr.AddReadyzCheck("cache", synced); err != nil {
		return fmt.Errorf("setting up the readiness probe: %w", err)
	}
	return mgr.Start(ctx)
}

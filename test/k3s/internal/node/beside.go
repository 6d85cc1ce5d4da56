package node

import (
	"context"
	"time"

	"github.com/sirupsen/logrus"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/capk3s/capk3s/test/k3s/internal/config"
)

// RunBesideServer plays the node of a real K3s server that runs with
// --disable-agent, with the kubeconfig that such a server writes.
func RunBesideServer(ctx context.Context, cfg *config.Config) error {
	spec, err := NewSpec(cfg, cfg.Server.Control.DisableCCM)
	if err != nil {
		return err
	}
	// Only a server that runs an agent labels its own Node.
	spec.Labels["node-role.kubernetes.io/control-plane"] = "true"
	for ctx.Err() == nil {
		rest, err := clientcmd.BuildConfigFromFlags("", cfg.Server.KubeconfigPath)
		if err != nil {
			logrus.Infof("Waiting for the server's kubeconfig: %v", err)
			time.Sleep(time.Second)
			continue
		}
		kubelet, err := NewKubelet(spec, rest)
		if err != nil {
			return err
		}
		if err := kubelet.Register(ctx); err != nil {
			return nil
		}
		kubelet.Run(ctx)
	}
	return nil
}

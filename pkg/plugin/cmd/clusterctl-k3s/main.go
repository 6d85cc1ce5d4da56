// Command clusterctl-k3s is a plugin of clusterctl: on PATH, it is called as "clusterctl k3s".
package main

import (
	"os"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/capk3s/capk3s/pkg/plugin"
)

func main() {
	os.Exit(plugin.Run(ctrl.SetupSignalHandler(), os.Args[1:], os.Stdout, os.Stderr))
}

// Package custody tests both providers together where it hurts: crashes, lost answers, restores, races. The
// kube-apiserver, the garbage collector and Cluster API's controllers are real; infrastructure and K3s pretend.
package custody

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"
	"testing"

	"sigs.k8s.io/cluster-api/util/test/builder"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/capk3s/capk3s/test/testenv"
)

// env is the management cluster. Its API server also holds the Nodes of the workload clusters.
var env *testenv.Env

// all are the pretended workload clusters.
var all = &fleet{clusters: map[string]*workload{}}

// thoroughness multiplies the lives and the restores that are tried. At 5, every write meets every fault.
var thoroughness = 1

func TestMain(m *testing.M) {
	if text := os.Getenv("CUSTODY_THOROUGHNESS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			fmt.Fprintln(os.Stderr, "CUSTODY_THOROUGHNESS is a number from 1 on")
			os.Exit(1)
		}
		thoroughness = n
	}
	ctrl.SetLogger(spoken.logger())
	// Clusters mostly wait. The command line may say otherwise.
	if err := flag.Set("test.parallel", "10"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	testenv.Main(m, &env, options()...)
}

func options() []testenv.Option {
	return []testenv.Option{testenv.WithCRDs(
		builder.GenericInfrastructureClusterCRD.DeepCopy(),
		builder.GenericInfrastructureMachineCRD.DeepCopy(),
		builder.GenericInfrastructureMachineTemplateCRD.DeepCopy(),
	)}
}

var background = context.Background()

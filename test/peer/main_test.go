//go:build e2e

package peer

import (
	"os"
	"testing"

	"github.com/go-logr/logr"
	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/capk3s/capk3s/test/world"
)

var (
	// here is the world that the specs run in.
	here *world.World

	// management is the management cluster that they share.
	management *world.Management
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	here, management = world.EnterWithManagement()
	code := m.Run()
	management.Stop()
	os.Exit(code)
}

// TestPeer_SpecsOfClusterAPIHold runs the specs one after the other: they are Ginkgo's, which has one suite a program.
func TestPeer_SpecsOfClusterAPIHold(t *testing.T) {
	gomega.RegisterFailHandler(ginkgo.Fail)
	ginkgo.RunSpecs(t, "Cluster API's own specs")
}

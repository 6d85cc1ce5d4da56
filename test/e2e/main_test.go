//go:build e2e

// Package e2e tests the operator in the test world: a real management cluster, machines that real cloud-init boots,
// and K3s servers that are emulated but for their real etcd and kube-apiserver.
package e2e

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/capk3s/capk3s/test/world"
)

var (
	// here is the world that the tests run in.
	here *world.World

	// management is the management cluster that the tests share.
	management *world.Management
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	here, management = world.EnterWithManagement()
	if err := guard.Watch(context.Background(), management.Config); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	passed := code == 0
	for name, check := range map[string]func() ([]string, error){
		"permissions": func() ([]string, error) { return checkPermissions(context.Background(), passed) },
		"silence":     checkSilence,
	} {
		problems, err := check()
		if err != nil {
			problems = append(problems, err.Error())
		}
		for _, problem := range problems {
			fmt.Printf("FAIL: %s: %s\n", name, problem)
			code = 1
		}
	}
	management.Stop()
	os.Exit(code)
}

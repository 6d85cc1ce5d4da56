package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/capk3s/capk3s/test/world"
)

// greeting explains the shell and starts it; the shell's own files aren't read,
// so that the prompt and the path stay.
const greeting = `
echo "This shell is in the demo's world."
echo "  kubectl get cluster,kthreescontrolplane,machine     the management cluster"
echo "  workload get nodes                                  the workload cluster"
echo "  clusterctl describe cluster demo                    all of it at a glance"
echo "  ip netns exec demo_MACHINE ...                      the network of a machine"
kubectl config set-context --current --namespace=demo >/dev/null
workload() { kubectl --kubeconfig=/run/world/management/demo_demo.kubeconfig "$@"; }
PS1='demo \w \$ '
`

// shell opens a shell in the world of a demo that runs.
func shell(pidFile string) error {
	cache, err := world.CacheDir()
	if err != nil {
		return err
	}
	rc, err := os.CreateTemp("", "demo-shell-*")
	if err != nil {
		return fmt.Errorf("preparing the shell: %w", err)
	}
	defer os.Remove(rc.Name())
	defer rc.Close()
	if _, err := rc.WriteString(greeting); err != nil {
		return fmt.Errorf("preparing the shell: %w", err)
	}
	cmd, err := world.Join(pidFile, "bash", "--rcfile", rc.Name(), "-i")
	if errors.Is(err, world.ErrNoWorld) {
		return errors.New("no demo is running: start one with \"make demo KEEP=1\"")
	}
	if err != nil {
		return err
	}
	path := []string{filepath.Join(cache, "bin"), os.Getenv("PATH")}
	if assets := os.Getenv("KUBEBUILDER_ASSETS"); assets != "" {
		path = append([]string{assets}, path...)
	}
	cmd.Env = append(os.Environ(),
		"KUBECONFIG=/run/world/management/admin.kubeconfig", "CLUSTERCTL_DISABLE_VERSIONCHECK=true",
		"PATH="+strings.Join(path, ":"))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		return fmt.Errorf("opening the shell: %w", err)
	}
	return nil // how the last command in the shell ended is no error of ours
}

package plugin_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestClusterctl_RunsThePlugin(t *testing.T) {
	f, servers := newServersFixture(t)
	servers.token = "another-one"
	servers.start(t)
	bin := t.TempDir()
	build, err := exec.Command("go", "build", "-o", filepath.Join(bin, "clusterctl-k3s"), "./cmd/clusterctl-k3s").CombinedOutput()
	require.NoError(t, err, string(build))

	clusterctl := filepath.Join(env.Binaries(), "clusterctl")
	if _, err := os.Stat(clusterctl); err != nil {
		clusterctl, err = exec.LookPath("clusterctl")
		require.NoError(t, err, "run make test-binaries")
	}
	run := func(args ...string) (string, int) {
		cmd := exec.Command(clusterctl, append([]string{"k3s"}, args...)...)
		cmd.Env = append(os.Environ(), "PATH="+bin, "KUBECONFIG="+f.kubeconfig, "XDG_CONFIG_HOME="+t.TempDir(), "CLUSTERCTL_DISABLE_VERSIONCHECK=true")
		out, _ := cmd.CombinedOutput()
		f.requireNoSecrets(t, string(out))
		return string(out), cmd.ProcessState.ExitCode()
	}
	out, code := run("status", "c", "-n", f.cluster.Namespace)
	assert.Zero(t, code, out)
	assert.Contains(t, out, "c-control-plane")
	out, code = run("status", "nobody")
	assert.Equal(t, 2, code, "the plugin's exit code is clusterctl's")
	assert.Contains(t, out, "there is no Cluster nobody in namespace default")
	out, code = run("token", "verify", "c", "-n", f.cluster.Namespace)
	assert.Equal(t, 1, code, out)
	assert.Contains(t, out, "TokenDrifted")
	out, code = run("--help")
	assert.Zero(t, code)
	assert.Contains(t, out, "clusterctl k3s [command]")
}

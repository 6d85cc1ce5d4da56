package validation

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
	"github.com/capk3s/capk3s/test/testenv"
)

// onServer marks the commands of a page that run on a K3s server. What the emulator has there, the conformance suite
// compares with K3s.
const onServer = "# on a server"

// The commands in the page about custody run as they stand there, one after the other, in a namespace with a cluster
// named example. What they delete or need besides is what the page tells of.
func TestDocs_CommandsOfCustodyRun(t *testing.T) {
	ctx := context.Background()
	cluster := testenv.Cluster(env.Namespace(t), "example")
	env.Create(t, cluster, testenv.ControlPlane(cluster, func(cp *controlplanev1.KThreesControlPlane) { cp.Name = "example" }))
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: "example-token"}}
	folder := t.TempDir()

	commands := shellBlocks(t, "../../docs/custody.md")
	require.Len(t, commands, 7, "a command was added: what does it need here?")
	for i, command := range commands {
		switch i {
		case 5, 6: // The Secret was lost.
			require.NoError(t, env.Client.Delete(ctx, secret.DeepCopy()))
		}
		output := runShell(t, cluster.Namespace, folder, command)
		t.Logf("%s\n%s", command, output)
		switch i {
		case 0, 5, 6:
			env.Refresh(t, secret)
			require.Equal(t, clusterv1.ClusterSecretType, secret.Type)
			require.Equal(t, "example", secret.Labels[clusterv1.ClusterNameLabel])
			require.NotEmpty(t, secret.Data["value"])
		case 1:
			env.Refresh(t, secret)
			require.Equal(t, "0123456789abcdef", string(secret.Data["value"]))
		case 2:
			cp := &controlplanev1.KThreesControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: "example"}}
			env.Refresh(t, cp)
			require.Equal(t, "true", cp.Annotations[controlplanev1.AllowInitAnnotation])
		}
	}
}

// shellBlocks returns the blocks of shell commands in a page, without those for a server.
func shellBlocks(t *testing.T, path string) []string {
	t.Helper()
	page, err := os.ReadFile(path)
	require.NoError(t, err)
	var blocks []string
	for _, part := range strings.Split(string(page), "```sh\n")[1:] {
		block, _, closed := strings.Cut(part, "```")
		require.True(t, closed)
		if !strings.Contains(block, onServer) {
			blocks = append(blocks, block)
		}
	}
	return blocks
}

func runShell(t *testing.T, namespace, folder, command string) string {
	t.Helper()
	kubeconfig := filepath.Join(folder, "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, env.KubeConfig, 0o600))
	shell := exec.Command("bash", "-eu", "-o", "pipefail", "-c", `kubectl() { command kubectl --namespace="$NAMESPACE" "$@"; }; `+command)
	shell.Dir = folder
	shell.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "NAMESPACE="+namespace, "TOKEN=0123456789abcdef", "AGENT_TOKEN=fedcba9876543210",
		"PATH="+env.Binaries()+":"+os.Getenv("PATH"))
	output, err := shell.CombinedOutput()
	require.NoErrorf(t, err, "%s\n%s", command, output)
	return string(output)
}

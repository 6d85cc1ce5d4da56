package testenv

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// StartControllerManager runs a real kube-controller-manager with garbage collection and namespace deletion until
// the test ends. It returns once the garbage collector has removed a probe object.
func (e *Env) StartControllerManager(t testing.TB) {
	t.Helper()
	bin, err := binaries("kube-controller-manager")
	require.NoError(t, err)

	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, e.KubeConfig, 0o600))
	logfile, err := os.Create(filepath.Join(dir, "log"))
	require.NoError(t, err)

	cmd := exec.Command(filepath.Join(bin, "kube-controller-manager"),
		"--kubeconfig="+kubeconfig,
		"--controllers=garbage-collector-controller,namespace-controller",
		"--leader-elect=false",
		"--secure-port=0",
		"--kube-api-qps=1000", "--kube-api-burst=2000")
	cmd.Stdout, cmd.Stderr = logfile, logfile
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, cmd.Start())
	guard, err := newGuard(cmd.Process.Pid)
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		guard.release()
		if content, err := os.ReadFile(logfile.Name()); err == nil && t.Failed() {
			t.Logf("kube-controller-manager:\n%s", content[max(0, len(content)-8000):])
		}
		_ = logfile.Close()
	})
	require.NoError(t, err)
	e.awaitGarbageCollection(t)
}

// awaitGarbageCollection waits until an object whose only owner doesn't exist disappears.
func (e *Env) awaitGarbageCollection(t testing.TB) {
	t.Helper()
	orphan := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace:    e.Namespace(t),
		GenerateName: "orphan-",
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "v1", Kind: "ConfigMap", Name: "gone", UID: "00000000-0000-0000-0000-000000000000",
		}},
	}}
	require.NoError(t, e.Client.Create(context.Background(), orphan))
	require.Eventually(t, func() bool {
		err := e.Client.Get(context.Background(), client.ObjectKeyFromObject(orphan), &corev1.ConfigMap{})
		return apierrors.IsNotFound(err)
	}, startTimeout, 200*time.Millisecond, "the garbage collector didn't start")
}

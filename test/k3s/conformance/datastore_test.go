//go:build conformance

package conformance

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// noOtherToken is what a server says whose token doesn't open the data in the datastore outside of it.
const noOtherToken = fatal + "bootstrap data already found and encrypted with different token"

// TestDatastore is what the sources say of servers with a datastore outside of
// them, here an etcd; it was not measured.
func TestDatastore(t *testing.T) {
	besideOthers(t)
	d1, d2, d3 := newMachine(t, "d", 41), newMachine(t, "d", 42), newMachine(t, "d", 43)
	endpoint := startEtcd(t)
	d1.configure(t, settings{"datastore-endpoint": endpoint, "token": password})
	d2.configure(t, settings{"datastore-endpoint": endpoint, "token": password, "cluster-init": true})
	p1, p2 := d1.start(t, "server"), d2.start(t, "server")
	p1.waitUp(t)
	p2.waitUp(t)

	t.Run("no etcd of its own", func(t *testing.T) {
		noEtcd(t, d1)
		noEtcd(t, d2)
	})
	t.Run("servers that start at once are one cluster", func(t *testing.T) {
		sameFiles(t, d1, d2)
		createNode(t, d1.kube(t), "seen", nil, nil)
		_, err := d2.kube(t).CoreV1().Nodes().Get(t.Context(), "seen", metav1.GetOptions{})
		require.NoError(t, err)
	})
	t.Run("other token", func(t *testing.T) {
		d3.configure(t, settings{"datastore-endpoint": endpoint, "token": "other", "server": d1.url("")})
		p := d3.start(t, "server")
		assert.Equal(t, 1, p.waitExit(t, time.Minute))
		assert.Contains(t, p.message(), noOtherToken)
	})
}

// TestDatastore_Kine is the same with a database, which is reached through kine.
func TestDatastore_Kine(t *testing.T) {
	besideOthers(t)
	d4 := newMachine(t, "d", 44)
	start := func(token string) *process {
		d4.configure(t, settings{"datastore-endpoint": "sqlite:///var/lib/outside.db?_journal=WAL&_busy_timeout=30000&_txlock=immediate", "token": token})
		return d4.start(t, "server")
	}
	refused := func(token string) {
		p := start(token)
		assert.Equal(t, 1, p.waitExit(t, time.Minute))
		assert.Contains(t, p.message(), noOtherToken)
	}
	p := start(password)
	p.waitUp(t)
	noEtcd(t, d4)
	assert.FileExists(t, d4.path("var", "lib", "outside.db"))
	p.stop(t)
	refused("other")

	p = start(password)
	p.waitUp(t)
	got := asServer.do(t, "PUT", d4.url("/v1-k3s/token"), `{"newToken":"`+rotated+`"}`)
	require.Equal(t, 200, got.code, got.body)
	p.stop(t)
	refused(password)
	start(rotated).waitUp(t)
}

func noEtcd(t *testing.T, m *machine) {
	t.Helper()
	info := asServer.get(t, m.url("/db/info"))
	assert.Equal(t, 400, info.code)
	assert.Contains(t, info.body, "etcd datastore disabled")
	data := asServer.get(t, m.url("/v1-k3s/server-bootstrap"))
	assert.Equal(t, 400, data.code)
	assert.Contains(t, data.body, "etcd disabled")
	assert.NoDirExists(t, m.server("db", "etcd"))
}

// startEtcd runs an etcd outside of the machines and returns its URL.
func startEtcd(t *testing.T) string {
	t.Helper()
	program := filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "etcd")
	if _, err := os.Stat(program); err != nil {
		program = filepath.Join(cacheDir(), "bin", "etcd")
	}
	url := "http://" + gateway + ":2379"
	cmd := exec.Command(program, "--data-dir", t.TempDir(), "--listen-client-urls", url, "--advertise-client-urls", url, "--log-level", "error")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return url
}

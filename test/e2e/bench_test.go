//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
)

const (
	// foreign is the number of Secrets in the management cluster that have nothing to do with the operator.
	foreign = 20_000

	// foreignSize is the size of each in bytes.
	foreignSize = 1_000

	// notReadyRuns is how often a Node turns NotReady.
	notReadyRuns = 5
)

// BenchmarkOperator measures one operator with one settled cluster: its requests in an idle minute, its resident
// memory, the slowest of several times from a Node that turns NotReady to the status that says so, and the memory
// again among many foreign Secrets.
func BenchmarkOperator(b *testing.B) {
	c := newCluster(b, "bench", 1, 1)
	c.awaitSettled(1, 1)
	c.awaitQuiet()

	from := time.Now()
	time.Sleep(time.Minute) // the minute that is measured
	requests := c.operatorRequests(from, "get", "list", "watch", "create", "update", "patch", "delete")
	b.ReportMetric(float64(len(requests)), "requests/cluster/idle-minute")
	b.ReportMetric(residentMegabytes(b), "MB-resident")

	var slowest time.Duration
	for range notReadyRuns {
		slowest = max(slowest, c.measureNotReady())
	}
	b.ReportMetric(float64(slowest.Milliseconds()), "ms-from-node-NotReady-to-status")

	createForeignSecrets(b)
	b.ReportMetric(residentMegabytes(b), fmt.Sprintf("MB-resident-with-%d-foreign-secrets", foreign))
	b.ReportMetric(0, "ns/op") // says nothing here
}

// measureNotReady has the Node of the only server turn NotReady, which lasts until the next heartbeat of its kubelet,
// and returns the time until the control plane is seen not to be available.
func (c *cluster) measureNotReady() time.Duration {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c.awaitSettled(1, 1)
	cp := c.controlPlane()
	watcher, err := c.at.Client.Watch(ctx, &controlplanev1.KThreesControlPlaneList{}, client.InNamespace(c.namespace),
		&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: cp.ResourceVersion}})
	require.NoError(c.t, err)
	defer watcher.Stop()

	node := &corev1.Node{}
	require.NoError(c.t, c.workload.Client.Get(ctx, client.ObjectKey{Name: c.servers()[0].Status.NodeRef.Name}, node))
	patch := []byte(`{"status":{"conditions":[{"type":"Ready","status":"False","reason":"Bench","message":"turned NotReady"}]}}`)
	start := time.Now()
	require.NoError(c.t, c.workload.Client.Status().Patch(ctx, node, client.RawPatch(types.StrategicMergePatchType, patch)))
	for event := range watcher.ResultChan() {
		if changed, ok := event.Object.(*controlplanev1.KThreesControlPlane); ok && conditions.IsFalse(changed, controlplanev1.AvailableCondition) {
			return time.Since(start)
		}
	}
	c.t.Fatal("the status never said so")
	return 0
}

// residentMegabytes is the resident memory of the operator's two processes.
func residentMegabytes(t testing.TB) float64 {
	t.Helper()
	sum := 0.0
	for _, pod := range management.Operator() {
		sum += residentMegabytesOf(t, pod.PID())
	}
	return sum
}

func residentMegabytesOf(t testing.TB, pid int) float64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(status), "VmRSS:")
	require.True(t, found)
	var kilobytes float64
	_, err = fmt.Sscanf(rest, "%f kB", &kilobytes)
	require.NoError(t, err)
	return kilobytes / 1024
}

func createForeignSecrets(b *testing.B) {
	b.Helper()
	ctx := context.Background()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "foreign"}}
	require.NoError(b, management.Client.Create(ctx, namespace))
	b.Cleanup(func() { require.NoError(b, management.Client.Delete(ctx, namespace)) })

	value := []byte(strings.Repeat("x", foreignSize))
	var group errgroup.Group
	group.SetLimit(16)
	for i := range foreign {
		group.Go(func() error {
			return management.Client.Create(ctx, &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: fmt.Sprintf("s-%05d", i)},
				Data:       map[string][]byte{"value": value},
			})
		})
	}
	require.NoError(b, group.Wait())

	secrets := &metav1.PartialObjectMetadataList{}
	secrets.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
	require.NoError(b, management.Client.List(ctx, secrets, client.InNamespace(namespace.Name)))
	require.Len(b, secrets.Items, foreign)
}

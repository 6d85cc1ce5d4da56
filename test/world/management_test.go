package world

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capk3s/capk3s/test/sandbox/api/v1beta1"
)

// userData boots a machine that only says that it has booted.
const userData = "#cloud-config\nruncmd:\n- mkdir -p /run/cluster-api && echo {{ v1.instance_id }} > /run/cluster-api/bootstrap-success.complete\n"

func eventually(t *testing.T, condition func() bool, message string) {
	t.Helper()
	require.Eventually(t, condition, 2*time.Minute, 100*time.Millisecond, message)
}

func TestManagement_MakesMachinesForClusterAPI(t *testing.T) {
	ctx := t.Context()
	m, err := current.StartManagement(ctx, ManagementOptions{NoOperator: true, Progress: func(what string) { t.Log(what) }})
	require.NoError(t, err)
	t.Cleanup(m.Stop)

	cluster := &clusterv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c"},
		Spec: clusterv1.ClusterSpec{
			InfrastructureRef:    clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "SandboxCluster", Name: "c"},
			ControlPlaneEndpoint: clusterv1.APIEndpoint{},
		},
	}
	infraCluster := &infrav1.SandboxCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c"},
		Spec:       infrav1.SandboxClusterSpec{FailureDomains: []clusterv1.FailureDomain{{Name: "a", ControlPlane: ptr.To(true)}}},
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "data"},
		StringData: map[string]string{"value": "## template: jinja\n" + userData},
	}
	labels := map[string]string{clusterv1.ClusterNameLabel: "c", clusterv1.MachineControlPlaneLabel: ""}
	owner := &clusterv1.Machine{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "m", Labels: labels},
		Spec: clusterv1.MachineSpec{
			ClusterName: "c", Bootstrap: clusterv1.Bootstrap{DataSecretName: ptr.To("data")}, FailureDomain: "a",
			InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "SandboxMachine", Name: "m"},
		},
	}
	infraMachine := &infrav1.SandboxMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "m", Labels: labels}}
	for _, obj := range []client.Object{cluster, infraCluster, secret, owner, infraMachine} {
		require.NoError(t, m.Client.Create(ctx, obj))
	}
	get := func(obj client.Object) bool { return m.Client.Get(ctx, client.ObjectKeyFromObject(obj), obj) == nil }

	eventually(t, func() bool {
		return get(cluster) && ptr.Deref(cluster.Status.Initialization.InfrastructureProvisioned, false)
	}, "the Cluster learns of its infrastructure")
	require.Equal(t, clusterv1.APIEndpoint{Host: "10.213.255.1", Port: 6443}, cluster.Spec.ControlPlaneEndpoint)
	require.Equal(t, infraCluster.Spec.FailureDomains, cluster.Status.FailureDomains)

	eventually(t, func() bool {
		return get(infraMachine) && meta(infraMachine.Status.Conditions, infrav1.BootstrapSucceededCondition) == metav1.ConditionTrue
	}, "the bootstrap data is done")
	eventually(t, func() bool {
		return get(owner) && ptr.Deref(owner.Status.Initialization.InfrastructureProvisioned, false)
	}, "the Machine learns of its infrastructure")
	require.Equal(t, "sandbox:///default/m", owner.Spec.ProviderID)
	require.Contains(t, owner.Status.Addresses, clusterv1.MachineAddress{Type: clusterv1.MachineInternalIP, Address: "10.213.0.2"})

	machine, err := m.Host.Open("default", "m")
	require.NoError(t, err)
	sentinel, err := machine.ReadFile("/run/cluster-api/bootstrap-success.complete")
	require.NoError(t, err)
	require.Equal(t, "m", strings.TrimSpace(string(sentinel)))

	t.Run("the machine survives the provider's restart", func(t *testing.T) {
		require.NoError(t, m.Sandbox.Restart())
		require.True(t, machine.Running())
		eventually(t, func() bool {
			conn, err := net.Dial("tcp", "10.213.255.1:6443")
			if err == nil {
				conn.Close()
			}
			return err == nil
		}, "the endpoint is open again")
	})
	t.Run("what is stored survives a crash of the API server and of core", func(t *testing.T) {
		for _, process := range []*Process{m.APIServer, m.Core} {
			before := process.PID()
			require.NoError(t, process.Crash(ctx))
			require.NotEqual(t, before, process.PID())
			require.True(t, get(owner), "the API server answers, and still has the Machine")
		}
		require.True(t, machine.Running())
	})
	t.Run("a machine that is killed stays off and is reported", func(t *testing.T) {
		require.NoError(t, machine.Kill(ctx))
		eventually(t, func() bool {
			return get(infraMachine) && meta(infraMachine.Status.Conditions, infrav1.ReadyCondition) == metav1.ConditionFalse
		}, "Ready goes to False")
		require.False(t, machine.Running())
	})
	t.Run("deleting the cluster leaves nothing", func(t *testing.T) {
		require.NoError(t, m.Client.Delete(ctx, cluster))
		eventually(t, func() bool {
			return apierrors.IsNotFound(m.Client.Get(context.WithoutCancel(ctx), client.ObjectKeyFromObject(cluster), cluster))
		}, "the Cluster goes")
		machines, err := m.Host.List()
		require.NoError(t, err)
		require.Empty(t, machines)
	})
}

func meta(conditions []metav1.Condition, kind string) metav1.ConditionStatus {
	for _, condition := range conditions {
		if condition.Type == kind {
			return condition.Status
		}
	}
	return ""
}

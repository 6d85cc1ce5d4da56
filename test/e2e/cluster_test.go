//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
	"github.com/capk3s/capk3s/pkg/k3s"
	infrav1 "github.com/capk3s/capk3s/test/sandbox/api/v1beta1"
	"github.com/capk3s/capk3s/test/world"
)

const (
	version = "v1.36.3+k3s1"

	// patience is how long a step may take on a busy machine with two cores.
	patience = 15 * time.Minute
)

// cluster is a workload cluster under test.
type cluster struct {
	t testing.TB
	// at is the management cluster that it belongs to.
	at        *world.Management
	namespace string
	name      string
	// version that the cluster is created with.
	version string
	// external says that the servers have a datastore outside, and no etcd members.
	external bool
	workload *world.Workload
}

// newCluster creates the objects of a cluster in a namespace of its own. What is left of it ends with the test.
func newCluster(t testing.TB, name string, servers, workers int32) *cluster {
	t.Helper()
	return newClusterAt(t, management, name, version, servers, workers)
}

// newClusterAt creates them in the given management cluster, and for the given version of K3s. Something else can be
// done in the namespace before.
func newClusterAt(t testing.TB, at *world.Management, name, version string, servers, workers int32, before ...func(*cluster)) *cluster {
	t.Helper()
	// go test takes the result of an earlier run while what a test asks the environment for is the same. It doesn't see
	// the programs that the world runs.
	_ = os.Getenv("E2E_CHECKSUM")
	ctx := context.Background()
	c := &cluster{t: t, at: at, namespace: "e2e-" + name, name: name, version: version}
	c.create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.namespace}})
	for _, do := range before {
		do(c)
	}
	for _, object := range c.objects(servers, workers) {
		c.create(ctx, object)
	}
	t.Cleanup(c.remove)
	return c
}

func (c *cluster) create(ctx context.Context, object client.Object) {
	c.t.Helper()
	require.NoErrorf(c.t, c.at.Client.Create(ctx, object), "creating %T %s", object, object.GetName())
}

// objects are the manifests of the cluster.
func (c *cluster) objects(servers, workers int32) []client.Object {
	meta := metav1.ObjectMeta{Namespace: c.namespace, Name: c.name}
	agent := bootstrapv1.AgentConfig{KubeletArgs: []string{"provider-id={{ ds.meta_data.provider_id }}"}}
	selector := map[string]string{clusterv1.ClusterNameLabel: c.name, clusterv1.MachineDeploymentNameLabel: c.name}
	return []client.Object{
		&infrav1.SandboxCluster{ObjectMeta: meta},
		&infrav1.SandboxMachineTemplate{ObjectMeta: meta},
		&bootstrapv1.KThreesConfigTemplate{ObjectMeta: meta, Spec: bootstrapv1.KThreesConfigTemplateSpec{
			Template: bootstrapv1.KThreesConfigTemplateResource{Spec: bootstrapv1.KThreesConfigSpec{AgentConfig: agent}},
		}},
		&controlplanev1.KThreesControlPlane{ObjectMeta: meta, Spec: controlplanev1.KThreesControlPlaneSpec{
			Replicas: ptr.To(servers),
			Version:  c.version,
			MachineTemplate: controlplanev1.KThreesControlPlaneMachineTemplate{
				Spec: controlplanev1.KThreesControlPlaneMachineTemplateSpec{InfrastructureRef: c.ref(infrav1.GroupVersion.Group, "SandboxMachineTemplate")},
			},
			KThreesConfigSpec: bootstrapv1.KThreesConfigSpec{AgentConfig: agent},
		}},
		&clusterv1.Cluster{ObjectMeta: meta, Spec: clusterv1.ClusterSpec{
			ControlPlaneRef:   c.ref(controlplanev1.GroupVersion.Group, "KThreesControlPlane"),
			InfrastructureRef: c.ref(infrav1.GroupVersion.Group, "SandboxCluster"),
		}},
		&clusterv1.MachineDeployment{ObjectMeta: meta, Spec: clusterv1.MachineDeploymentSpec{
			ClusterName: c.name,
			Replicas:    ptr.To(workers),
			Selector:    metav1.LabelSelector{MatchLabels: selector},
			Template: clusterv1.MachineTemplateSpec{
				ObjectMeta: clusterv1.ObjectMeta{Labels: selector},
				Spec: clusterv1.MachineSpec{
					ClusterName:       c.name,
					Version:           c.version,
					Bootstrap:         clusterv1.Bootstrap{ConfigRef: c.ref(bootstrapv1.GroupVersion.Group, "KThreesConfigTemplate")},
					InfrastructureRef: c.ref(infrav1.GroupVersion.Group, "SandboxMachineTemplate"),
				},
			},
		}},
	}
}

func (c *cluster) ref(group, kind string) clusterv1.ContractVersionedObjectReference {
	return clusterv1.ContractVersionedObjectReference{APIGroup: group, Kind: kind, Name: c.name}
}

// get reads an object of the cluster's name; it must exist.
func get[T client.Object](c *cluster, object T) T {
	c.t.Helper()
	require.NoError(c.t, c.at.Client.Get(context.Background(), client.ObjectKey{Namespace: c.namespace, Name: c.name}, object))
	return object
}

func (c *cluster) controlPlane() *controlplanev1.KThreesControlPlane {
	c.t.Helper()
	return get(c, &controlplanev1.KThreesControlPlane{})
}

// scale changes the number of servers and workers; it waits for nothing.
func (c *cluster) scale(servers, workers int32) {
	c.t.Helper()
	c.patch(c.controlPlane(), fmt.Sprintf(`{"spec":{"replicas":%d}}`, servers))
	c.patch(get(c, &clusterv1.MachineDeployment{}), fmt.Sprintf(`{"spec":{"replicas":%d}}`, workers))
}

func (c *cluster) patch(object client.Object, merge string) {
	c.t.Helper()
	require.NoError(c.t, c.at.Client.Patch(context.Background(), object, client.RawPatch("application/merge-patch+json", []byte(merge))))
}

// awaitSettled waits until the cluster has so many servers and workers, as the workload and the status say.
func (c *cluster) awaitSettled(servers, workers int) {
	c.t.Helper()
	c.eventually(fmt.Sprintf("%d servers and %d workers", servers, workers), func(ctx context.Context) error {
		cp := c.controlPlane()
		if int(ptr.Deref(cp.Status.Replicas, 0)) != servers || int(ptr.Deref(cp.Status.ReadyReplicas, 0)) != servers {
			return fmt.Errorf("status: %d replicas, %d ready: %s", ptr.Deref(cp.Status.Replicas, 0), ptr.Deref(cp.Status.ReadyReplicas, 0), summary(cp))
		}
		if err := checkConditions(cp); err != nil {
			return err
		}
		return c.checkWorkload(ctx, servers, workers)
	})
}

// checkConditions looks for what a control plane in good order says.
func checkConditions(cp *controlplanev1.KThreesControlPlane) error {
	if !conditions.IsTrue(cp, controlplanev1.AvailableCondition) || !conditions.IsTrue(cp, controlplanev1.EtcdClusterHealthyCondition) {
		return fmt.Errorf("conditions: %s", summary(cp))
	}
	return nil
}

// awaitGrown waits until the workload has so many servers and workers, whatever the status says.
func (c *cluster) awaitGrown(servers, workers int) {
	c.t.Helper()
	c.eventually(fmt.Sprintf("a workload of %d servers and %d workers", servers, workers), func(ctx context.Context) error {
		return c.checkWorkload(ctx, servers, workers)
	})
}

func (c *cluster) checkWorkload(ctx context.Context, servers, workers int) error {
	nodes, members, err := c.nodesAndMembers(ctx)
	if err != nil {
		return err
	}
	gotServers, gotWorkers := 0, 0
	for i := range nodes {
		if k3s.NodeReady(&nodes[i]) != metav1.ConditionTrue {
			return fmt.Errorf("node %s is not ready", nodes[i].Name)
		}
		if k3s.IsControlPlaneNode(&nodes[i]) {
			gotServers++
		} else {
			gotWorkers++
		}
	}
	voters := 0
	for _, m := range members {
		if !m.IsLearner {
			voters++
		}
	}
	wantMembers := servers
	if c.external {
		wantMembers = 0
	}
	if gotServers != servers || gotWorkers != workers || voters != wantMembers || len(members) != wantMembers {
		return fmt.Errorf("workload: %d servers, %d workers, %d voters of %d members", gotServers, gotWorkers, voters, len(members))
	}
	return nil
}

// nodesAndMembers reads the workload's Nodes and etcd's members, which a datastore outside doesn't have.
func (c *cluster) nodesAndMembers(ctx context.Context) ([]corev1.Node, []k3s.Member, error) {
	w, err := c.connect(ctx)
	if err != nil {
		return nil, nil, err
	}
	nodes, err := w.Nodes(ctx)
	if err != nil || c.external {
		return nodes, nil, err
	}
	members, err := w.Members(ctx)
	return nodes, members, err
}

func (c *cluster) connect(ctx context.Context) (*world.Workload, error) {
	if c.workload == nil {
		w, err := c.at.Workload(ctx, c.namespace, c.name)
		if err != nil {
			return nil, err
		}
		c.workload = w
	}
	return c.workload, nil
}

// eventually waits until check returns nil, and fails with what it returned last.
func (c *cluster) eventually(what string, check func(context.Context) error) {
	c.t.Helper()
	deadline := time.Now().Add(patience)
	start := time.Now()
	for {
		ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
		err := check(ctx)
		cancel()
		if err == nil {
			c.t.Logf("%s: %s after %s", c.name, what, time.Since(start).Round(time.Second))
			return
		}
		if time.Now().After(deadline) {
			c.dump()
			require.NoErrorf(c.t, err, "%s: waiting for %s", c.name, what)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// remove deletes the cluster at the end of a test, whatever state it is in.
func (c *cluster) remove() {
	if c.workload != nil {
		c.workload.Close()
	}
	object := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: c.name}}
	if err := c.at.Client.Delete(context.Background(), object); apierrors.IsNotFound(err) {
		return
	}
	c.awaitGone()
}

// awaitGone waits until the Cluster is gone.
func (c *cluster) awaitGone() {
	c.t.Helper()
	c.eventually("deletion", func(ctx context.Context) error {
		err := c.at.Client.Get(ctx, client.ObjectKey{Namespace: c.namespace, Name: c.name}, &clusterv1.Cluster{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("the Cluster is still there: %w", err)
	})
}

// servers lists the Machines of the control plane that aren't being deleted, in the order of their names.
func (c *cluster) servers() []clusterv1.Machine {
	c.t.Helper()
	return slices.DeleteFunc(c.machines(), func(m clusterv1.Machine) bool { return !isServer(&m) || !m.DeletionTimestamp.IsZero() })
}

// machines lists all Machines in the order of their names.
func (c *cluster) machines() []clusterv1.Machine {
	c.t.Helper()
	list := &clusterv1.MachineList{}
	require.NoError(c.t, c.at.Client.List(context.Background(), list, client.InNamespace(c.namespace)))
	slices.SortFunc(list.Items, func(a, b clusterv1.Machine) int { return strings.Compare(a.Name, b.Name) })
	return list.Items
}

// tokenSecret reads the token Secret.
func (c *cluster) tokenSecret() *corev1.Secret {
	c.t.Helper()
	secret := &corev1.Secret{}
	require.NoError(c.t, c.at.Client.Get(context.Background(), client.ObjectKey{Namespace: c.namespace, Name: c.name + "-token"}, secret))
	return secret
}

// requireCustody checks that the token is the one given, with one controller reference, to the control plane.
func (c *cluster) requireCustody(token []byte) {
	c.t.Helper()
	secret := c.tokenSecret()
	// The values stay out of the log.
	require.True(c.t, string(token) == string(secret.Data["value"]), "the token is the same bytes")
	require.Len(c.t, secret.OwnerReferences, 1)
	require.True(c.t, metav1.IsControlledBy(secret, c.controlPlane()))
	require.Equal(c.t, "KThreesControlPlane", secret.OwnerReferences[0].Kind)
}

// dump logs the objects of the cluster for whoever reads a failure.
func (c *cluster) dump() {
	out, err := c.at.Kubectl(context.Background(), "get", "-n", c.namespace, "cluster,kthreescontrolplane,machine,kthreesconfig,sandboxmachine,events", "-o", "wide")
	c.t.Logf("%s\n%v", out, err)
	c.t.Log(summary(c.controlPlane()))
}

func summary(cp *controlplanev1.KThreesControlPlane) string {
	text := ""
	for _, condition := range cp.Status.Conditions {
		text += fmt.Sprintf("\n  %s=%s %s %s", condition.Type, condition.Status, condition.Reason, condition.Message)
	}
	return text
}

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
	"github.com/capk3s/capk3s/test/chaos"
	infrav1 "github.com/capk3s/capk3s/test/sandbox/api/v1beta1"
)

// TestTopology_RunsTheReleasedClusterClass has Cluster API's topology controller run a cluster of the ClusterClass.
func TestTopology_RunsTheReleasedClusterClass(t *testing.T) {
	t.Parallel()
	c := newTopology(t, "topology", version134)
	c.awaitSpec(chaos.Cluster{Servers: 1, Workers: 1, Version: version134})
	token, templates := c.tokenSecret().Data["value"], c.templates()
	c.requireVariables()

	first := c.serverNames()
	c.patchTopology(`{"controlPlane":{"metadata":{"labels":{"test":"topology"}}}}`)
	c.awaitLabel("topology")
	assert.Equal(t, first, c.serverNames(), "a label replaces no server")

	c.patchTopology(fmt.Sprintf(`{"version":%q}`, version135))
	c.awaitSpec(chaos.Cluster{Servers: 1, Workers: 1, Version: version135})
	c.patchTopology(`{"workers":{"machineDeployments":[{"class":"worker","name":"md-0","replicas":2}]}}`)
	c.awaitSpec(chaos.Cluster{Servers: 1, Workers: 2, Version: version135})

	upgraded, workers := c.servers()[0].Name, c.workers()
	c.patchTopology(fmt.Sprintf(`{"controlPlane":{"rollout":{"after":%q}}}`, time.Now().UTC().Format(time.RFC3339)))
	c.awaitMachineGone(upgraded)
	c.awaitSpec(chaos.Cluster{Servers: 1, Workers: 2, Version: version135})
	assert.Equal(t, workers, c.workers(), "the rollout was of servers")

	c.requireVariables()
	c.requireCustody(token)
	// The topology controller makes a new template whenever it finds that one isn't as it applied it.
	assert.Equal(t, templates, c.templates())
}

// newTopology creates the ClusterClass, and a cluster of one server and one worker with a value for each variable.
func newTopology(t testing.TB, name, version string) *cluster {
	t.Helper()
	ctx := context.Background()
	c := &cluster{t: t, at: management, namespace: "e2e-" + name, name: name, version: version}
	c.create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.namespace}})
	c.create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "mirrors"},
		StringData: map[string]string{"registries.yaml": "mirrors: {docker.io: {endpoint: [\"https://mirror.test\"]}}\n"},
	})
	for _, object := range clusterClass(t, c.namespace) {
		c.create(ctx, object)
	}
	variable := func(name, value string) clusterv1.ClusterVariable {
		return clusterv1.ClusterVariable{Name: name, Value: apiextensionsv1.JSON{Raw: []byte(value)}}
	}
	c.create(ctx, &clusterv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: c.name},
		Spec: clusterv1.ClusterSpec{Topology: clusterv1.Topology{
			ClassRef:     clusterv1.ClusterClassRef{Name: "k3s"},
			Version:      version,
			ControlPlane: clusterv1.ControlPlaneTopology{Replicas: ptr.To[int32](1)},
			Workers: clusterv1.WorkersTopology{MachineDeployments: []clusterv1.MachineDeploymentTopology{
				{Class: "worker", Name: "md-0", Replicas: ptr.To[int32](1)},
			}},
			Variables: []clusterv1.ClusterVariable{
				variable("failureDomains", `["rack-1"]`),
				variable("extraServerConfig", `{"helm-job-image":"mirror.test/job:1"}`),
				variable("extraAgentConfig", `{"pause-image":"mirror.test/pause:1"}`),
				variable("registries", `{"secretName":"mirrors"}`),
			},
		}},
	})
	t.Cleanup(c.remove)
	c.eventually("a control plane", func(ctx context.Context) error {
		return c.at.Client.Get(ctx, client.ObjectKey{Namespace: c.namespace, Name: c.name}, &controlplanev1.KThreesControlPlane{})
	})
	return c
}

func (c *cluster) patchTopology(topology string) {
	c.t.Helper()
	c.patch(get(c, &clusterv1.Cluster{}), `{"spec":{"topology":`+topology+`}}`)
}

// requireVariables checks that the values of the variables are where the machines boot from.
func (c *cluster) requireVariables() {
	c.t.Helper()
	for _, server := range c.servers() {
		require.Equal(c.t, "rack-1", server.Spec.FailureDomain)
	}
	configs := &bootstrapv1.KThreesConfigList{}
	require.NoError(c.t, c.at.Client.List(context.Background(), configs, client.InNamespace(c.namespace)))
	require.Len(c.t, configs.Items, len(c.machines()))
	for _, config := range configs.Items {
		_, server := config.Labels[clusterv1.MachineControlPlaneLabel]
		if server {
			require.JSONEq(c.t, `"mirror.test/job:1"`, string(config.Spec.ServerConfig.ExtraConfig["helm-job-image"].Raw))
		}
		require.JSONEq(c.t, `"mirror.test/pause:1"`, string(config.Spec.AgentConfig.ExtraConfig["pause-image"].Raw))
		require.Equal(c.t, "mirrors", config.Spec.AgentConfig.Registries.ContentFrom.Secret.Name)
	}
}

// templates are the names of the templates that Machines are made from.
func (c *cluster) templates() []string {
	c.t.Helper()
	var names []string
	for _, list := range []client.ObjectList{&bootstrapv1.KThreesConfigTemplateList{}, &infrav1.SandboxMachineTemplateList{}} {
		require.NoError(c.t, c.at.Client.List(context.Background(), list, client.InNamespace(c.namespace)))
		require.NoError(c.t, meta.EachListItem(list, func(object runtime.Object) error {
			names = append(names, fmt.Sprintf("%T %s", object, object.(client.Object).GetName()))
			return nil
		}))
	}
	slices.Sort(names)
	return names
}

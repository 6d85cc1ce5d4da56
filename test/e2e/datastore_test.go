//go:build e2e

package e2e

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
)

// The database's endpoint, with its password, and its CA come from a Secret. Replicas are even.
func TestCluster_LivesInAnExternalDatabase(t *testing.T) {
	t.Parallel()
	database := startPostgres(t)
	c := &cluster{t: t, at: management, namespace: "e2e-database", name: "database", version: version, external: true}
	ctx := context.Background()
	meta := metav1.ObjectMeta{Namespace: c.namespace, Name: "postgres", Labels: map[string]string{clusterv1.ClusterNameLabel: c.name}}
	c.create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.namespace}})
	c.create(ctx, &corev1.Secret{ObjectMeta: meta, Data: map[string][]byte{"endpoint": []byte(database.endpoint), "ca.crt": database.ca}})
	for _, object := range c.objects(2, 1) {
		if cp, is := object.(*controlplanev1.KThreesControlPlane); is {
			cp.Spec.KThreesConfigSpec.ServerConfig.Datastore = bootstrapv1.DatastoreSpec{
				EndpointFrom: bootstrapv1.FileSource{Secret: bootstrapv1.SecretFileSource{Name: "postgres", Key: "endpoint"}},
				TLSSecret:    bootstrapv1.SecretReference{Name: "postgres"},
			}
		}
		c.create(ctx, object)
	}
	t.Cleanup(c.remove)

	c.awaitSettled(2, 1)
	token := c.tokenSecret().Data["value"]
	c.requireCustody(token)
	c.requireNoEtcd()
	stop := c.startWriter()
	c.scale(1, 1)
	c.awaitSettled(1, 1)
	c.scale(2, 1)
	c.awaitSettled(2, 1)
	c.requireWritten(stop())
	c.requireCustody(token)
	c.requireNoEtcd()
}

// requireNoEtcd checks that the cluster has no etcd of its own, and that nothing waits for one.
func (c *cluster) requireNoEtcd() {
	c.t.Helper()
	_, err := c.workload.Members(context.Background())
	require.ErrorContains(c.t, err, "400 Bad Request", "K3s lists no members")
	nodes, err := c.workload.Nodes(context.Background())
	require.NoError(c.t, err)
	for _, node := range nodes {
		require.NotContains(c.t, node.Labels, "node-role.kubernetes.io/etcd", node.Name)
		for key := range node.Annotations {
			require.NotContains(c.t, key, "etcd.k3s.cattle.io", node.Name)
		}
	}
	healthy := conditions.Get(c.controlPlane(), controlplanev1.EtcdClusterHealthyCondition)
	require.Equal(c.t, "the servers use an external datastore", healthy.Message)
	for _, machine := range c.machines() {
		require.Nil(c.t, conditions.Get(&machine, controlplanev1.MachineEtcdMemberHealthyCondition), machine.Name)
		for key := range machine.Annotations {
			require.NotContains(c.t, key, clusterv1.PreTerminateDeleteHookAnnotationPrefix, machine.Name)
		}
	}
}

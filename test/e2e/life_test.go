//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
)

// The CAs are the user's own.
func TestCluster_LivesThroughScalingLossAndDeletion(t *testing.T) {
	t.Parallel()
	var cas userCAs
	c := newClusterAt(t, management, "life", version, 3, 2, func(c *cluster) { cas = c.createUserCAs() })
	c.awaitSettled(3, 2)
	c.requireUserCAs(cas)
	token := c.tokenSecret().Data["value"]
	require.NotEmpty(t, token)
	c.requireCustody(token)

	t.Run("scaling 3 to 1 to 3 loses no acknowledged write and no quorum", func(t *testing.T) {
		c.t = t
		stop := c.startWriter()
		c.scale(1, 2)
		c.awaitSettled(1, 2)
		c.scale(3, 2)
		c.awaitSettled(3, 2)
		written := stop()
		c.requireWritten(written)
		c.requireQuorumAllAlong()
		c.requireCustody(token)
	})
	t.Run("a deleted token Secret comes back and machines join with it", func(t *testing.T) {
		c.t = t
		require.NoError(t, management.Client.Delete(context.Background(), c.tokenSecret()))
		c.eventually("the token is back", func(ctx context.Context) error {
			return management.Client.Get(ctx, client.ObjectKey{Namespace: c.namespace, Name: c.name + "-token"}, &corev1.Secret{})
		})
		c.requireCustody(token)
		c.scale(5, 3)
		c.awaitSettled(5, 3)
		c.requireCustody(token)
	})
	t.Run("of five servers one that dies is replaced, and its member leaves etcd first", func(t *testing.T) {
		c.t = t
		c.checkHealth(context.Background())
		c.replaceDeadServer(token, 5)
		require.NoError(t, management.Client.Delete(context.Background(), get(c, &clusterv1.MachineHealthCheck{})))
		c.scale(3, 3)
		c.awaitSettled(3, 3)
		c.requireCustody(token)
		c.requireUserCAs(cas)
	})
	t.Run("the token outlives every KThreesConfig", func(t *testing.T) {
		c.t = t
		configs := &bootstrapv1.KThreesConfigList{}
		require.NoError(t, management.Client.List(context.Background(), configs, client.InNamespace(c.namespace)))
		require.Len(t, configs.Items, 6)
		for i := range configs.Items {
			require.NoError(t, management.Client.Delete(context.Background(), &configs.Items[i]))
			c.awaitCollected(&configs.Items[i])
			c.requireCustody(token)
		}
		// Cluster API no longer calls the old Machines ready, but the cluster grows.
		c.scale(5, 4)
		c.awaitGrown(5, 4)
		c.requireCustody(token)
	})
	t.Run("deletion leaves no object and no process", func(t *testing.T) {
		c.t = t
		require.NoError(t, management.Client.Delete(context.Background(), get(c, &clusterv1.Cluster{})))
		c.awaitGone()
		c.requireNothingLeft()
	})
}

// startWriter writes a ConfigMap every 100 ms through the endpoint and counts those that were acknowledged. The
// function that it returns stops it and gives the names of those.
func (c *cluster) startWriter() (stop func() []string) {
	c.t.Helper()
	w, err := c.connect(context.Background())
	require.NoError(c.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan []string)
	var tried atomic.Int64
	prefix := fmt.Sprintf("write-%d-", time.Now().UnixNano())
	go func() {
		var acknowledged []string
		ticker := time.NewTicker(100 * time.Millisecond)
		defer ticker.Stop()
		for ctx.Err() == nil {
			name := prefix + strconv.FormatInt(tried.Add(1), 10)
			attempt, end := context.WithTimeout(ctx, 3*time.Second)
			if w.Client.Create(attempt, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: name}}) == nil {
				acknowledged = append(acknowledged, name)
			}
			end()
			<-ticker.C
		}
		done <- acknowledged
	}()
	return func() []string {
		cancel()
		acknowledged := <-done
		c.t.Logf("%d writes tried, %d acknowledged", tried.Load(), len(acknowledged))
		return acknowledged
	}
}

// requireWritten checks that every acknowledged write is there.
func (c *cluster) requireWritten(names []string) {
	c.t.Helper()
	require.NotEmpty(c.t, names)
	stored := map[string]bool{}
	c.eventually("reading what was written", func(ctx context.Context) error {
		list := &corev1.ConfigMapList{}
		if err := c.workload.Client.List(ctx, list, client.InNamespace(metav1.NamespaceSystem)); err != nil {
			return err
		}
		for i := range list.Items {
			stored[list.Items[i].Name] = true
		}
		return nil
	})
	for _, name := range names {
		assert.True(c.t, stored[name], "%s was acknowledged", name)
	}
}

// awaitCollected waits until the object is gone and the garbage collector has seen it: what it owned is gone too.
func (c *cluster) awaitCollected(config *bootstrapv1.KThreesConfig) {
	c.t.Helper()
	c.eventually("collection of what KThreesConfig "+config.Name+" owned", func(ctx context.Context) error {
		if err := c.at.Client.Get(ctx, client.ObjectKeyFromObject(config), &bootstrapv1.KThreesConfig{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the KThreesConfig is still there: %w", err)
		}
		if err := c.at.Client.Get(ctx, client.ObjectKeyFromObject(config), &corev1.Secret{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("its data Secret is still there: %w", err)
		}
		return nil
	})
}

package controllers

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
	"github.com/capk3s/capk3s/pkg/k3s"
)

// connected is a cluster cache of the test's API server.
type connected struct{ clustercache.ClusterCache }

func (connected) GetRESTConfig(context.Context, client.ObjectKey) (*rest.Config, error) {
	return env.Config, nil
}

// The cache of the workload cluster may hang on the very server that left etcd.
func TestReadWorkload_HearsOfARemovalThatTheCacheMissed(t *testing.T) {
	const member = "m0-1a2b3c4d"
	cases := []struct {
		name string
		// live are the annotations of the Node; nil when it is gone.
		live     map[string]string
		members  []k3s.Member
		released bool
	}{
		{name: "K3s has recorded it", live: map[string]string{k3s.EtcdRemovedNodeNameAnnotation: member}, released: true},
		{name: "the Node is gone", released: true},
		{name: "K3s is at it", live: map[string]string{k3s.EtcdRemoveAnnotation: "true"}},
		{
			name: "the member is still there", members: []k3s.Member{{Name: member}},
			live: map[string]string{k3s.EtcdRemovedNodeNameAnnotation: member},
		},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			ctx := context.Background()
			s := newScope(3)
			machine := s.machines["m0"]
			machine.DeletionTimestamp = new(metav1.Now())
			machine.Annotations = map[string]string{controlplanev1.PreTerminateHookAnnotation: "", controlplanev1.EtcdMemberAnnotation: member}
			machine.Status.NodeRef = clusterv1.MachineNodeReference{Name: "m0"}
			s.workload.members = tc.members
			s.workload.nodes["m0"] = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "m0", Annotations: map[string]string{k3s.EtcdRemoveAnnotation: "true"}}}
			if tc.live != nil {
				node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "m0", Annotations: tc.live}}
				env.Create(t, node)
				t.Cleanup(func() { require.NoError(t, env.Client.Delete(ctx, node)) })
			}
			r := &Reconciler{ClusterCache: connected{clustercache.NewFakeEmptyClusterCache()}}
			r.readRemovedNodes(ctx, s)
			assert.Equal(t, tc.released, memberGone(s, machine) != "")
		})
	}
}

// The orphan may be the member of a living server, too, and the cache may hang on it.
func TestReadWorkload_HearsThatAStandInHasServedThoughTheCacheMissedIt(t *testing.T) {
	ctx := context.Background()
	s := newScope(3)
	s.workload.standIn = standInNode(&ghost)
	live := standInNode(&ghost)
	live.Annotations[k3s.EtcdRemoveAnnotation] = "false"
	live.Annotations[k3s.EtcdRemovedNodeNameAnnotation] = ghost.Name
	env.Create(t, live)
	r := &Reconciler{ClusterCache: connected{clustercache.NewFakeEmptyClusterCache()}}

	r.readRemovedNodes(ctx, s)
	p := decide(s)
	require.NotNil(t, p.dismiss)
	require.NoError(t, r.act(ctx, s, &p))
	assert.True(t, apierrors.IsNotFound(env.Client.Get(ctx, client.ObjectKeyFromObject(live), live)))

	s.workload.standIn = standInNode(&ghost)
	r.readRemovedNodes(ctx, s)
	assert.Nil(t, s.workload.standIn, "gone, though the cache has it yet")
}

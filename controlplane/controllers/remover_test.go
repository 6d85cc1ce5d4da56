package controllers

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capk3s/capk3s/pkg/k3s"
)

func TestReadWorkload_AsksWhoRemovesMembersWhenOneHasToGo(t *testing.T) {
	ctx := context.Background()
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: k3s.EtcdLease},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: ptr.To("m1")},
	}
	env.Create(t, lease)
	t.Cleanup(func() { require.NoError(t, env.Client.Delete(ctx, lease)) })
	outdate := func(s *scope) { s.machines["m0"].Spec.Version = "v1.35.1+k3s1" }
	cases := []struct {
		name   string
		change func(*scope)
		want   string
	}{
		{name: "settled"},
		{name: "scaling down", change: func(s *scope) { s.controlPlane.Spec.Replicas = ptr.To[int32](1) }, want: "m1"},
		{name: "a rollout that adds a server first", change: outdate},
		{name: "a rollout that removes a server first", change: func(s *scope) {
			outdate(s)
			s.controlPlane.Spec.Rollout.Strategy.RollingUpdate.MaxSurge = ptr.To(intstr.FromInt32(0))
		}, want: "m1"},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			s := newScope(3)
			if tc.change != nil {
				tc.change(s)
			}
			r := &Reconciler{ClusterCache: clustercache.NewFakeClusterCache(env.Client, client.ObjectKeyFromObject(s.cluster))}
			r.readRemover(ctx, s)
			assert.Equal(t, tc.want, s.workload.remover)
		})
	}
}

func TestReadWorkload_WaitsForNobodyToSayWhoRemovesMembers(t *testing.T) {
	s := newScope(3)
	s.controlPlane.Spec.Replicas = ptr.To[int32](1)
	r := &Reconciler{ClusterCache: clustercache.NewFakeClusterCache(env.Client, client.ObjectKeyFromObject(s.cluster))}
	r.readRemover(context.Background(), s)
	assert.Empty(t, s.workload.remover)
	assert.NotNil(t, decide(s).delete)
}

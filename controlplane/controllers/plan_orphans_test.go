package controllers

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
	"github.com/capk3s/capk3s/pkg/k3s"
)

var ghost = k3s.Member{Name: "ghost-64d24546", PeerURLs: []string{"https://10.0.0.9:2380"}}

func TestDecide_RemovesAnOrphanMemberByANodeThatStandsIn(t *testing.T) {
	cases := []struct {
		name    string
		servers int
		change  func(*scope)
		standIn bool
		dismiss bool
		waits   string
	}{
		{name: "neither Machine nor Node", servers: 3, standIn: true},
		{name: "its Machine is known by the record", servers: 3, change: func(s *scope) {
			s.machines["m0"].Annotations[controlplanev1.EtcdMemberAnnotation] = ghost.Name
		}},
		{name: "it has a Node: a server that a restore forgot", servers: 3, change: func(s *scope) {
			s.workload.nodes["ghost"] = &corev1.Node{}
			s.workload.nodes["ghost"].Annotations = map[string]string{k3s.EtcdNodeNameAnnotation: ghost.Name}
		}},
		{name: "a learner: K3s evicts it", servers: 3, change: func(s *scope) { s.workload.members[3].IsLearner = true }},
		{name: "not started", servers: 3, change: func(s *scope) { s.workload.members[3].Name = "" }},
		{name: "a server without a Node yet may be it", servers: 3, change: func(s *scope) { neverJoined(s, "m2") }, waits: "m2 is still being provisioned"},
		{name: "a server whose Node doesn't name its member yet may be it", servers: 3, change: func(s *scope) {
			s.workload.nodes["m2"].Annotations = nil
		}, waits: "may be that of Machine m2"},
		{name: "a Node without a Machine may be it", servers: 3, change: func(s *scope) {
			s.workload.nodes["ghost"] = &corev1.Node{}
		}, waits: "may be that of Node ghost"},
		{name: "another change is under way", servers: 3, change: func(s *scope) { markDeleting(s, "m2") }, waits: ""},
		{name: "etcd would lose its quorum", servers: 2, change: func(s *scope) { kill(s, "m0") }, waits: "too few"},
		{name: "unreachable", servers: 3, change: func(s *scope) { s.workload.nodesErr = errors.New("down") }},
		{name: "K3s is at it", servers: 3, change: func(s *scope) { s.workload.standIn = standInNode(&ghost) }},
		{name: "K3s has removed it", servers: 3, dismiss: true, change: func(s *scope) {
			s.workload.members = s.workload.members[:3]
			s.workload.standIn = standInNode(&ghost)
			s.workload.standIn.Annotations = map[string]string{k3s.EtcdRemovedNodeNameAnnotation: ghost.Name}
		}},
		{name: "K3s says so but etcd doesn't yet", servers: 3, change: func(s *scope) {
			s.workload.standIn = standInNode(&ghost)
			s.workload.standIn.Annotations = map[string]string{k3s.EtcdRemovedNodeNameAnnotation: ghost.Name}
		}},
		{name: "K3s refused", servers: 3, dismiss: true, change: func(s *scope) {
			s.workload.standIn = standInNode(&ghost)
			delete(s.workload.standIn.Annotations, k3s.EtcdRemoveAnnotation)
		}},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			s := newScope(tc.servers)
			s.workload.members = append(s.workload.members, ghost)
			if tc.change != nil {
				tc.change(s)
			}
			p := decide(s)
			assert.Equal(t, tc.standIn, p.standIn != nil)
			assert.Equal(t, tc.dismiss, p.dismiss != nil)
			assert.Contains(t, joined(p), tc.waits)
			assert.Nil(t, p.create)
			assert.Nil(t, p.delete)
		})
	}
}

func TestAct_MakesAStandInOnlyForAMemberWithoutANode(t *testing.T) {
	ctx := context.Background()
	s := newScope(3)
	r := &Reconciler{
		ClusterCache: connected{clustercache.NewFakeEmptyClusterCache()},
		Recorder:     events.NewFakeRecorder(10),
	}
	require.NoError(t, r.act(ctx, s, &plan{standIn: &ghost}))
	node := standInNode(&ghost)
	env.Refresh(t, node)
	t.Cleanup(func() { assert.NoError(t, client.IgnoreNotFound(env.Client.Delete(ctx, node))) })
	assert.Equal(t, "true", node.Annotations[k3s.EtcdRemoveAnnotation])
	assert.Equal(t, "10.0.0.9", node.Annotations[k3s.EtcdNodeAddressAnnotation])
	assert.Contains(t, node.Labels, k3s.EtcdLabel)
	assert.False(t, k3s.IsControlPlaneNode(node), "no server")

	require.NoError(t, r.act(ctx, s, &plan{dismiss: node}))
	assert.Error(t, env.Client.Get(ctx, client.ObjectKeyFromObject(node), node))

	named, addressed := &corev1.Node{}, &corev1.Node{}
	named.Name, named.Annotations = "named", map[string]string{k3s.EtcdNodeNameAnnotation: ghost.Name}
	addressed.Name, addressed.Status.Addresses = "addressed", []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.9"}}
	for _, living := range []*corev1.Node{named, addressed} {
		status := living.Status
		env.Create(t, living)
		living.Status = status
		require.NoError(t, env.Client.Status().Update(ctx, living))
		require.NoError(t, r.act(ctx, s, &plan{standIn: &ghost}))
		assert.Errorf(t, env.Client.Get(ctx, client.ObjectKeyFromObject(node), node), "Node %s, which the cache doesn't know yet, has the member", living.Name)
		require.NoError(t, env.Client.Delete(ctx, living))
	}
}

package controllers

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
	"github.com/capk3s/capk3s/pkg/k3s"
)

func TestDecide_HoldsADeletingServerUntilItsMemberIsGone(t *testing.T) {
	const name = "m1"
	cases := []struct {
		name    string
		servers int
		change  func(*scope)
		remove  bool
		release bool
		standIn bool
		waits   string
	}{
		{name: "drained: K3s is asked to remove the member", servers: 3, remove: true},
		{name: "still being drained", servers: 3, change: func(s *scope) { s.machines[name].Status.Conditions[0].Reason = "DrainingNode" }},
		{name: "another hook comes first", servers: 3, change: func(s *scope) {
			s.machines[name].Annotations[clusterv1.PreTerminateDeleteHookAnnotationPrefix+"/backup"] = ""
		}},
		{name: "K3s is at it", servers: 3, change: func(s *scope) {
			s.workload.nodes[name].Annotations[k3s.EtcdRemoveAnnotation] = "true"
		}, waits: "K3s is removing"},
		{name: "member gone, K3s has recorded it", servers: 3, change: func(s *scope) {
			removeMemberOf(s, name)
			s.workload.nodes[name].Annotations = map[string]string{k3s.EtcdRemovedNodeNameAnnotation: memberOf(name)}
		}, release: true},
		{name: "member gone, K3s has not recorded it", servers: 3, change: func(s *scope) {
			removeMemberOf(s, name)
			s.workload.nodes[name].Annotations[k3s.EtcdRemoveAnnotation] = "true"
		}},
		{name: "member gone, K3s has recorded it, and was asked again", servers: 3, change: func(s *scope) {
			removeMemberOf(s, name)
			s.machines[name].Annotations[controlplanev1.EtcdMemberAnnotation] = memberOf(name)
			s.workload.nodes[name].Annotations = map[string]string{
				k3s.EtcdRemovedNodeNameAnnotation: memberOf(name), k3s.EtcdRemoveAnnotation: "true",
			}
		}, release: true},
		{name: "another member's removal is recorded: rejoined", servers: 3, change: func(s *scope) {
			s.workload.nodes[name].Annotations[k3s.EtcdRemovedNodeNameAnnotation] = name + "-00000000"
		}, remove: true},
		{name: "Node and member gone", servers: 3, change: func(s *scope) {
			removeMemberOf(s, name)
			delete(s.workload.nodes, name)
		}, release: true},
		{name: "Node gone, member there", servers: 3, change: func(s *scope) {
			s.machines[name].Annotations[controlplanev1.EtcdMemberAnnotation] = memberOf(name)
			delete(s.workload.nodes, name)
		}, standIn: true},
		{name: "Node gone, member there, K3s is at it", servers: 3, change: func(s *scope) {
			s.machines[name].Annotations[controlplanev1.EtcdMemberAnnotation] = memberOf(name)
			delete(s.workload.nodes, name)
			s.workload.standIn = standInNode(&s.workload.members[1])
		}, waits: "K3s is removing"},
		{name: "never joined", servers: 3, change: func(s *scope) {
			s.machines[name].Status.NodeRef = clusterv1.MachineNodeReference{}
			s.machines[name].Spec.ProviderID = ""
			removeMemberOf(s, name)
			delete(s.workload.nodes, name)
		}, release: true},
		{name: "unreachable", servers: 3, change: func(s *scope) { s.workload.nodesErr = errors.New("down") }, waits: "down"},
		{name: "a learner is joining", servers: 3, change: func(s *scope) { s.workload.members[2].IsLearner = true }, waits: "learner"},
		{name: "quorum would be lost", servers: 3, change: func(s *scope) {
			setNode(s, "m0", corev1.NodeReady, corev1.ConditionUnknown)
		}, waits: "needs 2"},
		{name: "of two, the other stays", servers: 2, remove: true},
		{name: "external datastore", servers: 3, change: func(s *scope) {
			s.controlPlane.Spec.KThreesConfigSpec.ServerConfig.ExtraConfig = map[string]jsonValue{"datastore-endpoint": {}}
		}, release: true},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			s := newScope(tc.servers)
			markDeleting(s, name)
			if tc.change != nil {
				tc.change(s)
			}
			p := decide(s)
			assert.Equal(t, tc.remove, p.remove != nil)
			assert.Equal(t, tc.release, len(p.release) == 1)
			assert.Equal(t, tc.standIn, p.standIn != nil)
			if tc.waits != "" {
				assert.Contains(t, joined(p), tc.waits)
				assert.NotZero(t, p.requeueAfter)
			}
		})
	}
}

func TestDecide_RemovesOneMemberAtATime(t *testing.T) {
	s := newScope(5)
	markDeleting(s, "m3")
	markDeleting(s, "m1")
	p := decide(s)
	require.NotNil(t, p.remove)
	assert.Equal(t, "m1", p.remove.machine.Name)
}

func TestAct_AsksForARemovalOnlyOnTheNodeAsItIs(t *testing.T) {
	ctx := context.Background()
	s := newScope(3)
	r := &Reconciler{
		ClusterCache: clustercache.NewFakeClusterCache(env.Client, client.ObjectKeyFromObject(s.cluster)),
		Recorder:     events.NewFakeRecorder(10),
	}
	node := &corev1.Node{}
	node.Name, node.Annotations = "asked-once", map[string]string{k3s.EtcdNodeNameAnnotation: "asked-once-1"}
	env.Create(t, node)
	t.Cleanup(func() { assert.NoError(t, env.Client.Delete(ctx, node)) })
	outdated := node.DeepCopy()
	ask := func(node *corev1.Node) error {
		return r.act(ctx, s, &plan{remove: &removal{machine: s.active().Oldest(), node: node, member: "asked-once-1"}})
	}
	require.NoError(t, ask(node))
	env.Refresh(t, node)
	assert.Equal(t, "true", node.Annotations[k3s.EtcdRemoveAnnotation])

	// K3s records the removal and takes the request off.
	delete(node.Annotations, k3s.EtcdRemoveAnnotation)
	node.Annotations[k3s.EtcdRemovedNodeNameAnnotation] = "asked-once-1"
	require.NoError(t, env.Client.Update(ctx, node))
	assert.True(t, apierrors.IsConflict(ask(outdated)))
	env.Refresh(t, node)
	assert.NotContains(t, node.Annotations, k3s.EtcdRemoveAnnotation)
}

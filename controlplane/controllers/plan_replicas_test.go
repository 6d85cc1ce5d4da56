package controllers

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
	"github.com/capk3s/capk3s/pkg/custody"
	"github.com/capk3s/capk3s/pkg/k3s"
)

func TestDecide_AddsServersOneAtATimeWhenNothingSpeaksAgainstIt(t *testing.T) {
	cases := []struct {
		name    string
		servers int
		change  func(*scope)
		create  bool
		waits   string
	}{
		{name: "settled", servers: 1, create: true},
		{name: "token missing", servers: 1, change: func(s *scope) { s.token = nil }, waits: "token"},
		{name: "certificates missing", servers: 1, change: func(s *scope) { s.certificates = nil }, waits: "certificate"},
		{name: "infrastructure template missing", servers: 1, change: func(s *scope) { s.template = nil }, waits: "doesn't exist"},
		{name: "topology about to upgrade", servers: 1, change: func(s *scope) { s.cluster.Spec.Topology.Version = "v1.37.0+k3s1" }, waits: "v1.37.0+k3s1"},
		{name: "a Machine is being deleted", servers: 3, change: func(s *scope) { markDeleting(s, "m1") }, waits: "m1 is being deleted"},
		{name: "workload unreachable", servers: 1, change: func(s *scope) { s.workload.nodesErr = errors.New("down") }, waits: "down"},
		{name: "Node not there yet", servers: 1, change: func(s *scope) { delete(s.workload.nodes, "m0") }, waits: "m0 has no Node"},
		{name: "Node not ready", servers: 1, change: func(s *scope) { setNode(s, "m0", corev1.NodeReady, corev1.ConditionFalse) }, waits: "not ready"},
		{name: "etcd not readable", servers: 1, change: func(s *scope) { s.workload.membersErr = errors.New("no leader") }, waits: "no leader"},
		{name: "learner", servers: 3, change: func(s *scope) { s.workload.members[2].IsLearner = true }, waits: "learner m2"},
		{name: "member not started", servers: 1, change: func(s *scope) {
			s.workload.members = append(s.workload.members, k3s.Member{PeerURLs: []string{"https://10.0.0.9:2380"}})
		}, waits: "10.0.0.9"},
		{name: "member without a Machine", servers: 1, change: func(s *scope) {
			s.workload.members = append(s.workload.members, k3s.Member{Name: "gone-12345678"})
		}, waits: "gone-12345678 has no Machine"},
		{name: "Node without a Machine", servers: 1, change: func(s *scope) {
			s.workload.nodes["gone"] = &corev1.Node{}
			s.workload.nodes["gone"].Name = "gone"
		}, waits: "Node gone has no Machine"},
		{name: "voter unhealthy", servers: 3, change: func(s *scope) { setNode(s, "m2", k3s.EtcdIsVoterCondition, corev1.ConditionFalse) }, waits: "m2 is not healthy"},
		{name: "external datastore needs no etcd", servers: 1, create: true, change: func(s *scope) {
			s.controlPlane.Spec.KThreesConfigSpec.ServerConfig.Datastore.Endpoint = "postgres://db/k3s"
			s.workload.members, s.workload.membersErr = nil, errors.New("etcd disabled")
		}},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			s := newScope(tc.servers)
			s.controlPlane.Spec.Replicas = ptr.To(int32(5))
			if tc.change != nil {
				tc.change(s)
			}
			p := decide(s)
			assert.Equal(t, tc.create, p.create != nil)
			assert.Nil(t, p.delete)
			if tc.waits != "" {
				require.NotEmpty(t, p.waiting)
				assert.Contains(t, joined(p), tc.waits)
			}
		})
	}
}

func TestDecide_RemovesAServerOnlyWhenEtcdKeepsItsQuorum(t *testing.T) {
	cases := []struct {
		name   string
		change func(*scope)
		delete string
		waits  string
	}{
		{name: "settled: the oldest", delete: "m0"},
		{name: "a human's mark first", change: func(s *scope) {
			s.machines["m2"].Annotations[clusterv1.DeleteMachineAnnotation] = ""
		}, delete: "m2"},
		{name: "an outdated one first", change: func(s *scope) { s.machines["m1"].Spec.Version = "v1.35.1+k3s1" }, delete: "m1"},
		{name: "an unhealthy one first", change: func(s *scope) { setNode(s, "m2", k3s.EtcdIsVoterCondition, corev1.ConditionFalse) }, delete: "m2"},
		{name: "the fullest failure domain first", change: func(s *scope) {
			s.cluster.Status.FailureDomains = []clusterv1.FailureDomain{{Name: "a", ControlPlane: ptr.To(true)}, {Name: "b", ControlPlane: ptr.To(true)}}
			s.machines["m0"].Spec.FailureDomain, s.machines["m1"].Spec.FailureDomain, s.machines["m2"].Spec.FailureDomain = "a", "b", "b"
		}, delete: "m1"},
		{name: "the one that removes the others last", change: func(s *scope) { s.workload.remover = "M0" }, delete: "m1"},
		{name: "the one that removes the others before a healthy one when it is sick", change: func(s *scope) {
			s.workload.remover = "m1"
			setNode(s, "m1", k3s.EtcdIsVoterCondition, corev1.ConditionFalse)
		}, delete: "m1"},
		{name: "the one that removes the others when a human marked it", change: func(s *scope) {
			s.workload.remover = "m1"
			s.machines["m1"].Annotations[clusterv1.DeleteMachineAnnotation] = ""
		}, delete: "m1"},
		{name: "two of three are sick", change: func(s *scope) {
			setNode(s, "m1", k3s.EtcdIsVoterCondition, corev1.ConditionFalse)
			setNode(s, "m2", k3s.EtcdIsVoterCondition, corev1.ConditionFalse)
		}, waits: "needs 2"},
		{name: "one at a time", change: func(s *scope) { markDeleting(s, "m0") }, waits: "m0 is being deleted"},
		{name: "unreachable", change: func(s *scope) { s.workload.nodesErr = errors.New("down") }, waits: "down"},
		{name: "etcd not readable", change: func(s *scope) { s.workload.membersErr = errors.New("no leader") }, waits: "no leader"},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			s := newScope(3)
			s.controlPlane.Spec.Replicas = ptr.To(int32(1))
			if tc.change != nil {
				tc.change(s)
			}
			p := decide(s)
			assert.Nil(t, p.create)
			if tc.delete == "" {
				require.Nil(t, p.delete)
				assert.Contains(t, joined(p), tc.waits)
				return
			}
			require.NotNil(t, p.delete)
			assert.Equal(t, tc.delete, p.delete.Name)
		})
	}
}

func TestDecide_DoesNothingWhenSettled(t *testing.T) {
	for _, servers := range []int{1, 3, 5} {
		p := decide(newScope(servers))
		assert.Equal(t, plan{}, p, "%d servers", servers)
	}
}

func TestDecide_ReplacesTheOnlyServerBeforeItGoes(t *testing.T) {
	s := newScope(1)
	markDeleting(s, "m0")
	p := decide(s)
	assert.NotNil(t, p.create, "a replacement joins")
	assert.Nil(t, p.remove, "the only voter stays")
	assert.Empty(t, p.release)

	addServer(s, "m1")
	p = decide(s)
	require.NotNil(t, p.remove)
	assert.Equal(t, "m0", p.remove.machine.Name)
	assert.Equal(t, memberOf("m0"), p.remove.member)
}

func TestDecide_FoundsAClusterOnce(t *testing.T) {
	t.Run("first Machine without evidence", func(t *testing.T) {
		s := newScope(0)
		s.controlPlane.Spec.Replicas = ptr.To(int32(3))
		p := decide(s)
		require.NotNil(t, p.create)
		assert.True(t, p.create.first)
	})
	t.Run("no Machines but evidence", func(t *testing.T) {
		s := newScope(0)
		s.controlPlane.Spec.Replicas = ptr.To(int32(3))
		s.initialized, s.evidence = true, "The annotation"
		p := decide(s)
		assert.Nil(t, p.create)
		assert.Contains(t, joined(p), controlplanev1.AllowInitAnnotation)
	})
	t.Run("no Machines, evidence, and a human's word", func(t *testing.T) {
		s := newScope(0)
		s.controlPlane.Spec.Replicas = ptr.To(int32(3))
		s.initialized, s.evidence = true, "The annotation"
		s.controlPlane.Annotations = map[string]string{controlplanev1.AllowInitAnnotation: "true"}
		p := decide(s)
		require.NotNil(t, p.create)
		assert.True(t, p.create.first)
	})
	t.Run("the order goes to the first Machine only", func(t *testing.T) {
		s := newScope(0)
		machine := addServer(s, "m0")
		machine.Spec.Bootstrap.DataSecretName, machine.Status.NodeRef = nil, clusterv1.MachineNodeReference{}
		p := decide(s)
		require.NotNil(t, p.found)
		assert.Equal(t, "m0", p.found.Name)
	})
	t.Run("no order when the evidence names another Machine", func(t *testing.T) {
		s := newScope(0)
		machine := addServer(s, "m0")
		machine.Spec.Bootstrap.DataSecretName, machine.Status.NodeRef = nil, clusterv1.MachineNodeReference{}
		s.initialized = true
		s.controlPlane.Annotations = map[string]string{controlplanev1.InitializedAnnotation: `{"machine":"other"}`}
		assert.Nil(t, decide(s).found)
	})
	t.Run("the order is given again after a crash between evidence and order", func(t *testing.T) {
		s := newScope(0)
		machine := addServer(s, "m0")
		machine.Spec.Bootstrap.DataSecretName, machine.Status.NodeRef = nil, clusterv1.MachineNodeReference{}
		s.initialized = true
		s.controlPlane.Annotations = map[string]string{controlplanev1.InitializedAnnotation: `{"machine":"m0"}`}
		assert.NotNil(t, decide(s).found)
	})
	for name, tc := range map[string]struct {
		change func(s *scope)
		want   string
	}{
		"of two first Machines the older one founds": {func(*scope) {}, "m1"},
		"of two first Machines the one in the evidence founds": {func(s *scope) {
			s.initialized = true
			s.controlPlane.Annotations = map[string]string{controlplanev1.InitializedAnnotation: `{"machine":"m0"}`}
		}, "m0"},
		"of two first Machines none founds when one has data": {func(s *scope) {
			s.machines["m0"].Spec.Bootstrap.DataSecretName = ptr.To("m0")
		}, ""},
		"of two first Machines none founds while one is going": {func(s *scope) {
			s.machines["m0"].DeletionTimestamp = ptr.To(metav1.NewTime(testTime))
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScope(0)
			for i, name := range []string{"m0", "m1"} {
				machine := addServer(s, name)
				machine.CreationTimestamp = metav1.NewTime(testTime.Add(time.Duration(-i) * time.Minute))
				machine.Spec.Bootstrap.DataSecretName, machine.Status.NodeRef = nil, clusterv1.MachineNodeReference{}
			}
			tc.change(s)
			found := decide(s).found
			if tc.want == "" {
				require.Nil(t, found)
				return
			}
			require.NotNil(t, found)
			require.Equal(t, tc.want, found.Name)
		})
	}
	t.Run("never with data already made", func(t *testing.T) {
		s := newScope(1)
		s.initialized = false
		assert.Nil(t, decide(s).found)
	})
}

func joined(p plan) string {
	var text string
	for _, h := range p.waiting {
		text += h.message + "\n"
	}
	return text
}

func TestDecide_LooksAgainForAMissingTemplate(t *testing.T) {
	s := newScope(0)
	s.controlPlane.Spec.Replicas, s.template = ptr.To(int32(1)), nil
	p := decide(s)
	assert.Nil(t, p.create)
	assert.Equal(t, pollUnreachable, p.requeueAfter)
}

func TestDecide_LooksAgainWhenCustodyAsksForIt(t *testing.T) {
	later := custody.Errorf(controlplanev1.TokenContestedReason, "taken")
	later.RetryAfter = 10 * time.Minute
	sooner := custody.Errorf(controlplanev1.CertificatesLostReason, "lost")
	sooner.RetryAfter = 30 * time.Second
	cases := []struct {
		name                   string
		tokenErr, certificates error
		want                   time.Duration
	}{
		{name: "nothing"},
		{name: "one", tokenErr: later, want: 10 * time.Minute},
		{name: "the sooner of two", tokenErr: later, certificates: sooner, want: 30 * time.Second},
		{name: "no word on when", tokenErr: custody.Errorf(controlplanev1.TokenInvalidReason, "empty"), want: pollUnreachable},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			s := newScope(1)
			s.tokenErr, s.certificatesErr = tc.tokenErr, tc.certificates
			assert.Equal(t, tc.want, decide(s).requeueAfter)
		})
	}
}

func TestDecide_SpreadsServersOverFailureDomains(t *testing.T) {
	domain := func(name string, servers bool) clusterv1.FailureDomain {
		return clusterv1.FailureDomain{Name: name, ControlPlane: ptr.To(servers)}
	}
	cases := []struct {
		name    string
		domains []clusterv1.FailureDomain
		servers []string
		change  func(*scope)
		want    []string
	}{
		{name: "none", servers: []string{""}, want: []string{""}},
		{name: "the first server", domains: []clusterv1.FailureDomain{domain("a", false), domain("b", true)}, want: []string{"b"}},
		{name: "the emptiest", domains: []clusterv1.FailureDomain{domain("a", true), domain("b", true), domain("c", true)}, servers: []string{"a", "c"}, want: []string{"b"}},
		{name: "only for workers", domains: []clusterv1.FailureDomain{domain("a", true), domain("b", false)}, servers: []string{"a"}, want: []string{"a"}},
		{name: "one that is gone", domains: []clusterv1.FailureDomain{domain("a", true)}, servers: []string{"gone"}, want: []string{"a"}},
		{
			name: "outdated servers don't count", domains: []clusterv1.FailureDomain{domain("a", true), domain("b", true)}, servers: []string{"a", "b", "b"},
			change: func(s *scope) {
				for _, name := range []string{"m1", "m2"} {
					s.machines[name].Spec.Version = "v1.35.1+k3s1"
				}
			}, want: []string{"b"},
		},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			s := newScope(len(tc.servers))
			s.controlPlane.Spec.Replicas = ptr.To[int32](5)
			s.cluster.Status.FailureDomains = tc.domains
			for i, name := range tc.servers {
				s.machines[fmt.Sprintf("m%d", i)].Spec.FailureDomain = name
			}
			if tc.change != nil {
				tc.change(s)
			}
			p := decide(s)
			require.NotNil(t, p.create, joined(p))
			assert.Contains(t, tc.want, p.create.failureDomain)
		})
	}
}

func TestDecide_RollsOutWithinMaxSurge(t *testing.T) {
	cases := []struct {
		name           string
		servers, surge int
		change         func(*scope)
		create, delete bool
	}{
		{name: "one more first", servers: 3, surge: 1, create: true},
		{name: "then the outdated one goes", servers: 4, surge: 1, delete: true},
		{name: "one less first", servers: 3, surge: 0, delete: true},
		{name: "then its replacement comes", servers: 2, surge: 0, create: true},
		{name: "nothing while one is on its way", servers: 4, surge: 1, change: func(s *scope) { delete(s.workload.nodes, "m3") }},
		{name: "nothing when all are up-to-date", servers: 3, surge: 1, change: func(s *scope) { s.machines["m0"].Spec.Version = testVersion }},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			s := newScope(tc.servers)
			s.controlPlane.Spec.Replicas = ptr.To[int32](3)
			s.controlPlane.Spec.Rollout.Strategy.RollingUpdate.MaxSurge = ptr.To(intstr.FromInt(tc.surge))
			s.machines["m0"].Spec.Version = "v1.35.1+k3s1"
			if tc.change != nil {
				tc.change(s)
			}
			p := decide(s)
			assert.Equal(t, tc.create, p.create != nil, joined(p))
			assert.Equal(t, tc.delete, p.delete != nil, joined(p))
			if tc.delete {
				assert.Equal(t, "m0", p.delete.Name)
			}
		})
	}
}

package controllers

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
	"github.com/capk3s/capk3s/pkg/k3s"
)

// markUnhealthy does to a Machine what a MachineHealthCheck does.
func markUnhealthy(s *scope, name string) *clusterv1.Machine {
	machine := s.machines[name]
	for _, t := range []string{clusterv1.MachineHealthCheckSucceededCondition, clusterv1.MachineOwnerRemediatedCondition} {
		conditions.Set(machine, metav1.Condition{Type: t, Status: metav1.ConditionFalse, Reason: "Test"})
	}
	return machine
}

// kill makes a Machine one whose server died, and that was found unhealthy.
func kill(s *scope, name string) *clusterv1.Machine {
	setNode(s, name, corev1.NodeReady, corev1.ConditionUnknown)
	setNode(s, name, k3s.EtcdIsVoterCondition, corev1.ConditionFalse)
	return markUnhealthy(s, name)
}

// neverJoined makes a Machine one whose server never came up.
func neverJoined(s *scope, name string) *clusterv1.Machine {
	machine := s.machines[name]
	machine.Status.NodeRef, machine.Spec.ProviderID = clusterv1.MachineNodeReference{}, ""
	delete(s.workload.nodes, name)
	removeMemberOf(s, name)
	return machine
}

func recordOf(machine string, age time.Duration, retries int32) string {
	value, err := json.Marshal(remediationRecord{Machine: machine, Timestamp: metav1.NewTime(testTime.Add(-age)), RetryCount: retries})
	if err != nil {
		panic(err)
	}
	return string(value)
}

func TestDecide_ReplacesAnUnhealthyServerOnlyWhenTheClusterSurvivesIt(t *testing.T) {
	const deferred, cannot = controlplanev1.RemediationDeferredReason, controlplanev1.CannotBeRemediatedReason
	cases := []struct {
		name    string
		servers int
		change  func(*scope)
		want    string
		reason  string
		message string
	}{
		{name: "one of three", servers: 3, want: "m1", change: func(s *scope) { kill(s, "m1") }},
		{name: "one of five", servers: 5, want: "m4", change: func(s *scope) { kill(s, "m4") }},
		{name: "two of five: the first", servers: 5, want: "m1", change: func(s *scope) { kill(s, "m3"); kill(s, "m1") }},
		{name: "two of five: the second, before any replacement joins", servers: 5, want: "m3", change: func(s *scope) {
			kill(s, "m3")
			s.machines = s.machines.Filter(func(m *clusterv1.Machine) bool { return m.Name != "m1" })
			delete(s.workload.nodes, "m1")
			removeMemberOf(s, "m1")
			setAnnotation(s, controlplanev1.RemediationInProgressAnnotation, recordOf("m1", time.Minute, 0))
		}},
		{name: "two of three: quorum is lost already", servers: 3, reason: cannot, message: "needs 2", change: func(s *scope) { kill(s, "m0"); kill(s, "m1") }},
		{name: "a healthy server that a human marked", servers: 3, want: "m2", change: func(s *scope) {
			markUnhealthy(s, "m2").Annotations[clusterv1.RemediateMachineAnnotation] = ""
		}},
		{name: "the human's mark before a dead one", servers: 5, want: "m3", change: func(s *scope) {
			kill(s, "m0")
			markUnhealthy(s, "m3").Annotations[clusterv1.RemediateMachineAnnotation] = ""
		}},
		{name: "the one without a Node before a sick one", servers: 5, want: "m4", change: func(s *scope) {
			kill(s, "m0")
			neverJoined(s, "m4")
			markUnhealthy(s, "m4")
		}},
		{name: "the one without a healthy member before a server that isn't ready", servers: 5, want: "m3", change: func(s *scope) {
			setNode(s, "m1", corev1.NodeReady, corev1.ConditionFalse)
			markUnhealthy(s, "m1")
			kill(s, "m3")
		}},
		{name: "a learner has no vote to lose", servers: 3, want: "m2", change: func(s *scope) {
			s.workload.members[2].IsLearner = true
			markUnhealthy(s, "m2")
		}},
		{name: "learners are not counted as voters", servers: 3, reason: cannot, message: "needs 1", change: func(s *scope) {
			// Two voters, one of them dead, and a learner.
			s.workload.members[2].IsLearner = true
			setNode(s, "m0", k3s.EtcdIsVoterCondition, corev1.ConditionFalse)
			setNode(s, "m1", k3s.EtcdIsVoterCondition, corev1.ConditionFalse)
			markUnhealthy(s, "m1")
		}},
		{name: "the only server", servers: 1, reason: cannot, message: "only server", change: func(s *scope) { kill(s, "m0") }},
		{name: "another is being deleted", servers: 5, reason: deferred, message: "m0 is being deleted", change: func(s *scope) { kill(s, "m1"); markDeleting(s, "m0") }},
		{name: "another is being provisioned", servers: 5, reason: deferred, message: "m4 is still being provisioned", change: func(s *scope) { kill(s, "m1"); neverJoined(s, "m4") }},
		{name: "unreachable", servers: 3, reason: deferred, message: "down", change: func(s *scope) { kill(s, "m1"); s.workload.nodesErr = errors.New("down") }},
		{name: "etcd not readable", servers: 3, reason: deferred, message: "no leader", change: func(s *scope) { kill(s, "m1"); s.workload.membersErr = errors.New("no leader") }},
		{name: "no other server is ready", servers: 3, reason: cannot, message: "no other server", change: func(s *scope) {
			for name := range s.machines {
				setNode(s, name, corev1.NodeReady, corev1.ConditionFalse)
			}
			markUnhealthy(s, "m1")
		}},
		{name: "topology about to upgrade", servers: 3, reason: deferred, message: "v1.37.0+k3s1", change: func(s *scope) {
			kill(s, "m1")
			s.cluster.Spec.Topology.Version = "v1.37.0+k3s1"
		}},
		{name: "the first server never came up", servers: 1, want: "m0", change: func(s *scope) {
			s.workload.ready = false
			s.workload.nodesErr, s.workload.membersErr = errNoServerYet, errNoServerYet
			neverJoined(s, "m0")
			markUnhealthy(s, "m0")
		}},
		{name: "external datastore has no quorum to lose", servers: 3, want: "m0", change: func(s *scope) {
			s.controlPlane.Spec.KThreesConfigSpec.ServerConfig.Datastore.Endpoint = "postgres://db/k3s"
			s.workload.members, s.workload.membersErr = nil, errors.New("etcd disabled")
			kill(s, "m0")
			kill(s, "m1")
		}},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			s := newScope(tc.servers)
			tc.change(s)
			p := decide(s)
			assert.Nil(t, p.delete, "no scale down beside it")
			if tc.want != "" {
				require.NotNil(t, p.remediate)
				assert.Equal(t, tc.want, p.remediate.machine.Name)
				assert.Equal(t, tc.want, p.remediate.record.Machine)
				assert.Nil(t, p.create, "one change at a time")
				return
			}
			require.Nil(t, p.remediate)
			require.NotNil(t, p.refused)
			assert.Equal(t, tc.reason, p.refused.reason)
			assert.Contains(t, p.refused.message, tc.message)
		})
	}
}

func TestDecide_CountsTheRetriesOfARemediation(t *testing.T) {
	cases := []struct {
		name   string
		spec   controlplanev1.RemediationSpec
		record string
		owed   string
		count  int32
		wait   time.Duration
		reason string
	}{
		{name: "first time"},
		{name: "a replacement fails", record: recordOf("x", time.Minute, 0), count: 1},
		{name: "and again", record: recordOf("x", time.Minute, 4), count: 5},
		{name: "after the default healthy period it is a new failure", record: recordOf("x", time.Hour, 4)},
		{name: "after the healthy period of the spec", record: recordOf("x", 10*time.Minute, 4), spec: controlplanev1.RemediationSpec{MinHealthyPeriodSeconds: ptr.To[int32](600)}},
		{name: "within the retry period", record: recordOf("x", time.Minute, 0), spec: controlplanev1.RemediationSpec{RetryPeriodSeconds: ptr.To[int32](90)}, wait: 30 * time.Second, reason: controlplanev1.RemediationDeferredReason},
		{name: "after the retry period", record: recordOf("x", time.Minute, 0), spec: controlplanev1.RemediationSpec{RetryPeriodSeconds: ptr.To[int32](60)}, count: 1},
		{name: "as many as allowed", record: recordOf("x", time.Minute, 1), spec: controlplanev1.RemediationSpec{MaxRetry: ptr.To[int32](2)}, count: 2},
		{name: "one more than allowed", record: recordOf("x", time.Minute, 2), spec: controlplanev1.RemediationSpec{MaxRetry: ptr.To[int32](2)}, reason: controlplanev1.CannotBeRemediatedReason},
		{name: "no retry allowed: the first time isn't one", spec: controlplanev1.RemediationSpec{MaxRetry: ptr.To[int32](0)}},
		{name: "a record that a human broke", record: "{", count: 0},
		{name: "the count of another remediation goes on", owed: recordOf("other", time.Minute, 3), count: 3},
		{name: "cut short before the deletion: the same again", owed: recordOf("m1", time.Minute, 3), record: recordOf("x", 2*time.Minute, 0), count: 1},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			s := newScope(3)
			s.controlPlane.Spec.Remediation = tc.spec
			machine := kill(s, "m1")
			if tc.record != "" {
				machine.Annotations[controlplanev1.RemediationForAnnotation] = tc.record
			}
			if tc.owed != "" {
				setAnnotation(s, controlplanev1.RemediationInProgressAnnotation, tc.owed)
			}
			p := decide(s)
			if tc.reason != "" {
				require.NotNil(t, p.refused)
				assert.Equal(t, tc.reason, p.refused.reason)
				assert.Equal(t, tc.wait, p.requeueAfter, "the end of a wait can't be watched")
				return
			}
			require.NotNil(t, p.remediate)
			assert.Equal(t, tc.count, p.remediate.record.RetryCount)
			assert.True(t, p.remediate.record.Timestamp.Time.Equal(testTime))
		})
	}
}

func TestDecide_ADeadMemberLeavesEtcdBeforeItsReplacementJoins(t *testing.T) {
	for _, servers := range []int{3, 5} {
		t.Run(fmt.Sprintf("of %d", servers), func(t *testing.T) {
			s := newScope(servers)
			kill(s, "m1")
			require.NotNil(t, decide(s).remediate)

			setAnnotation(s, controlplanev1.RemediationInProgressAnnotation, recordOf("m1", time.Minute, 0))
			markDeleting(s, "m1")
			p := decide(s)
			require.NotNil(t, p.remove, "a majority of healthy voters can let the dead one go")
			assert.Equal(t, memberOf("m1"), p.remove.member)
			assert.Nil(t, p.create)

			s.machines = s.machines.Filter(func(m *clusterv1.Machine) bool { return m.Name != "m1" })
			assert.Nil(t, decide(s).create, "the member is still there")
			removeMemberOf(s, "m1")
			delete(s.workload.nodes, "m1")
			p = decide(s)
			assert.NotNil(t, p.create)
			assert.False(t, p.remediated, "the replacement is still owed")

			addServer(s, fmt.Sprintf("m%d", servers))
			p = decide(s)
			assert.Nil(t, p.create)
			assert.True(t, p.remediated)
		})
	}
}

func TestDecide_FoundsAnewAfterTheFirstServerNeverCameUp(t *testing.T) {
	newLost := func() *scope {
		s := newScope(0)
		s.controlPlane.Spec.Replicas = ptr.To(int32(3))
		s.initialized, s.evidence = true, "The annotation"
		setAnnotation(s, controlplanev1.InitializedAnnotation, `{"machine":"m0"}`)
		setAnnotation(s, controlplanev1.RemediationInProgressAnnotation, recordOf("m0", time.Minute, 0))
		return s
	}
	s := newLost()
	p := decide(s)
	require.NotNil(t, p.create)
	assert.True(t, p.create.first)

	machine := neverJoined(s, addServer(s, "m1").Name)
	machine.Spec.Bootstrap.DataSecretName = nil
	p = decide(s)
	require.NotNil(t, p.found, "the replacement gets the order")
	assert.Equal(t, "m1", p.found.Name)

	for name, change := range map[string]func(*scope){
		"another Machine was replaced": func(s *scope) {
			setAnnotation(s, controlplanev1.RemediationInProgressAnnotation, recordOf("m7", time.Minute, 0))
		},
		"no remediation": func(s *scope) { delete(s.controlPlane.Annotations, controlplanev1.RemediationInProgressAnnotation) },
		"it served once": func(s *scope) { s.controlPlane.Status.Initialization.ControlPlaneInitialized = ptr.To(true) },
		"Cluster API saw it serve": func(s *scope) {
			conditions.Set(s.cluster, metav1.Condition{Type: clusterv1.ClusterControlPlaneInitializedCondition, Status: metav1.ConditionTrue, Reason: "Test"})
		},
		"the endpoint answers": func(s *scope) { s.endpointLives = true },
	} {
		t.Run(name, func(t *testing.T) {
			s := newLost()
			change(s)
			assert.Nil(t, decide(s).create)
		})
	}
}

func TestRemediation_IsReported(t *testing.T) {
	s := newScope(3)
	s.machines["m0"].Annotations[controlplanev1.RemediationForAnnotation] = recordOf("old", time.Hour, 0)
	s.machines["m2"].Annotations[controlplanev1.RemediationForAnnotation] = recordOf("newer", time.Minute, 2)
	machine := kill(s, "m1")

	p := plan{refused: &refusal{machine: machine, reason: controlplanev1.RemediationDeferredReason, message: "wait for it"}}
	c := remediatingCondition(s, &p)
	assert.Equal(t, metav1.ConditionTrue, c.Status)
	assert.Equal(t, "* Machine m1: wait for it", c.Message)
	reportRemediated(&p, machine)
	assert.Equal(t, controlplanev1.RemediationDeferredReason, conditions.GetReason(machine, clusterv1.MachineOwnerRemediatedCondition))

	p = plan{remediate: &remediation{machine: machine}}
	assert.Equal(t, "* Machine m1 is being deleted, to be replaced", remediatingCondition(s, &p).Message)
	reportRemediated(&p, machine)
	assert.Equal(t, controlplanev1.MachineDeletingReason, conditions.GetReason(machine, clusterv1.MachineOwnerRemediatedCondition))

	conditions.Set(machine, metav1.Condition{Type: clusterv1.MachineHealthCheckSucceededCondition, Status: metav1.ConditionTrue, Reason: "Test"})
	reportRemediated(&plan{}, machine)
	assert.Nil(t, conditions.Get(machine, clusterv1.MachineOwnerRemediatedCondition), "healthy again")
	assert.Equal(t, metav1.ConditionFalse, remediatingCondition(s, &plan{}).Status)

	setAnnotation(s, controlplanev1.RemediationInProgressAnnotation, recordOf("gone", time.Second, 0))
	assert.Equal(t, "* Machine gone is to be replaced", remediatingCondition(s, &plan{}).Message)

	conditions.Set(machine, metav1.Condition{Type: clusterv1.MachineHealthCheckSucceededCondition, Status: metav1.ConditionFalse, Reason: "Test"})
	delete(s.controlPlane.Annotations, controlplanev1.RemediationInProgressAnnotation)
	c = remediatingCondition(s, &plan{})
	assert.Equal(t, metav1.ConditionFalse, c.Status, "an external remediation isn't ours")
	assert.Contains(t, c.Message, "m1 is unhealthy")

	reportLastRemediation(s)
	assert.Equal(t, "newer", s.controlPlane.Status.LastRemediation.Machine)
	assert.Equal(t, ptr.To[int32](2), s.controlPlane.Status.LastRemediation.RetryCount)
}

// A message that changed with each look would be written with each, and each write would be another look.
func TestDecide_SaysTheSameWhileARetryWaits(t *testing.T) {
	s := newScope(3)
	s.controlPlane.Spec.Remediation.RetryPeriodSeconds = ptr.To[int32](600)
	kill(s, "m1").Annotations[controlplanev1.RemediationForAnnotation] = recordOf("x", time.Minute, 0)
	before := decide(s).refused
	require.NotNil(t, before)
	s.now = s.now.Add(7 * time.Second)
	after := decide(s).refused
	require.NotNil(t, after)
	assert.Equal(t, before.message, after.message)
}

func TestDecide_LooksAgainAsSoonAsAnythingAsksForIt(t *testing.T) {
	s := newScope(5)
	markDeleting(s, "m0")
	kill(s, "m1").Annotations[controlplanev1.RemediationForAnnotation] = recordOf("x", time.Minute, 0)
	p := decide(s)
	require.NotNil(t, p.remove)
	require.NotNil(t, p.refused, "one change at a time")
	assert.Equal(t, pollMembers, p.requeueAfter, "the removal is still looked after")

	s.controlPlane.Spec.Remediation.RetryPeriodSeconds = ptr.To[int32](600)
	assert.Equal(t, pollMembers, decide(s).requeueAfter, "and isn't put off by a longer wait")
}

package controllers

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
	"github.com/capk3s/capk3s/pkg/certs"
	"github.com/capk3s/capk3s/pkg/custody"
	"github.com/capk3s/capk3s/pkg/k3s"
	"github.com/capk3s/capk3s/test/testenv"
)

// B9: what isn't healthy is never said to be.
func TestConditions_SayWhatIsTrue(t *testing.T) {
	const (
		yes, no, unknown = metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown
		available, etcd  = controlplanev1.AvailableCondition, controlplanev1.EtcdClusterHealthyCondition
	)
	cases := []struct {
		name    string
		change  func(*scope)
		want    map[string]metav1.ConditionStatus
		message string
	}{
		{name: "healthy", want: map[string]metav1.ConditionStatus{
			available: yes, etcd: yes, controlplanev1.InitializedCondition: yes,
			controlplanev1.TokenAvailableCondition: yes, controlplanev1.CertificatesAvailableCondition: yes,
			controlplanev1.RollingOutCondition: no, controlplanev1.ScalingUpCondition: no, controlplanev1.ScalingDownCondition: no,
			controlplanev1.RemediatingCondition: no, controlplanev1.DeletingCondition: no,
		}},
		{name: "no server is ready", change: func(s *scope) {
			for name := range s.workload.nodes {
				setNode(s, name, corev1.NodeReady, corev1.ConditionFalse)
			}
		}, want: map[string]metav1.ConditionStatus{available: no}, message: "no server is ready"},
		{name: "one server is down: etcd isn't healthy but has its quorum", change: func(s *scope) {
			setNode(s, "m0", corev1.NodeReady, corev1.ConditionUnknown)
		}, want: map[string]metav1.ConditionStatus{available: yes, etcd: no}, message: "m0"},
		{name: "two servers are down", change: func(s *scope) {
			setNode(s, "m0", corev1.NodeReady, corev1.ConditionUnknown)
			setNode(s, "m1", corev1.NodeReady, corev1.ConditionUnknown)
		}, want: map[string]metav1.ConditionStatus{available: no, etcd: no}, message: "1 healthy voters of 3 and needs 2"},
		{name: "unreachable", change: func(s *scope) {
			s.workload.ready = false
			s.controlPlane.Status.Initialization.ControlPlaneInitialized = ptr.To(true)
			s.workload.nodesErr, s.workload.membersErr = errors.New("down"), errors.New("down")
		}, want: map[string]metav1.ConditionStatus{available: unknown, etcd: unknown, controlplanev1.InitializedCondition: yes}, message: "down"},
		{name: "not started", change: func(s *scope) {
			s.workload.ready = false
			s.workload.nodesErr, s.workload.membersErr = errNoServerYet, errNoServerYet
		}, want: map[string]metav1.ConditionStatus{available: no, controlplanev1.InitializedCondition: no}},
		{name: "token lost", change: func(s *scope) {
			s.token, s.tokenErr = nil, custody.Errorf(controlplanev1.TokenLostReason, "gone")
		}, want: map[string]metav1.ConditionStatus{available: no, controlplanev1.TokenAvailableCondition: no}, message: "gone"},
		{name: "token not readable", change: func(s *scope) {
			s.token, s.tokenErr = nil, errors.New("etcdserver: request timed out")
		}, want: map[string]metav1.ConditionStatus{controlplanev1.TokenAvailableCondition: unknown}},
		{name: "certificates lost", change: func(s *scope) {
			s.certificates, s.certificatesErr = nil, custody.Errorf(controlplanev1.CertificatesLostReason, "c1-cca is gone")
		}, want: map[string]metav1.ConditionStatus{available: no, controlplanev1.CertificatesAvailableCondition: no}, message: "c1-cca is gone"},
		{name: "orphan member", change: func(s *scope) {
			s.workload.members = append(s.workload.members, k3s.Member{Name: "ghost-1"})
		}, want: map[string]metav1.ConditionStatus{etcd: no}, message: "ghost-1 has no Machine"},
		{name: "scaling up", change: func(s *scope) {
			s.controlPlane.Spec.Replicas = ptr.To[int32](5)
		}, want: map[string]metav1.ConditionStatus{controlplanev1.ScalingUpCondition: yes}, message: "from 3 to 5"},
		{name: "scaling down", change: func(s *scope) {
			s.controlPlane.Spec.Replicas = ptr.To[int32](1)
		}, want: map[string]metav1.ConditionStatus{controlplanev1.ScalingDownCondition: yes}, message: "from 3 to 1"},
		{name: "outdated", change: func(s *scope) {
			s.controlPlane.Spec.Version = "v1.36.3+k3s2"
		}, want: map[string]metav1.ConditionStatus{controlplanev1.RollingOutCondition: yes}, message: "v1.36.3+k3s2 required"},
		{name: "a rollout waits", change: func(s *scope) {
			s.controlPlane.Spec.Version = "v1.36.3+k3s2"
			setNode(s, "m1", corev1.NodeReady, corev1.ConditionFalse)
		}, want: map[string]metav1.ConditionStatus{controlplanev1.RollingOutCondition: yes}, message: "Node m1 of Machine m1 is not ready"},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			s := newScope(3)
			if tc.change != nil {
				tc.change(s)
			}
			p := decide(s)
			got := map[string]metav1.Condition{}
			text := ""
			for _, c := range computeConditions(s, &p) {
				require.NotEmpty(t, c.Reason, c.Type)
				got[c.Type] = c
				text += c.Message + "\n"
			}
			for conditionType, status := range tc.want {
				assert.Equal(t, status, got[conditionType].Status, "%s: %s", conditionType, got[conditionType].Message)
			}
			assert.Contains(t, text, tc.message)
			for _, owned := range ownedConditions {
				assert.Contains(t, got, owned)
			}
		})
	}
}

// What expires is said 90 days ahead, while there is time for a rotation.
func TestCertificatesCondition_SaysWhatExpiresSoon(t *testing.T) {
	certificates := newCertificates(t)
	untilCAs := certificates.Expiring(testTime.AddDate(100, 0, 0))[certs.ServerCA].Sub(testTime)
	for name, tc := range map[string]struct {
		later      time.Duration
		kubeconfig time.Duration
		want       []string
	}{
		"nothing":                       {later: 0, kubeconfig: 365 * 24 * time.Hour},
		"CAs in 91 days":                {later: untilCAs - 91*24*time.Hour},
		"CAs in 89 days":                {later: untilCAs - 89*24*time.Hour, want: []string{"c1-ca", "c1-cca", "c1-etcd", "c1-etcd-peer", "c1-proxy", "c1-root"}},
		"a kubeconfig that isn't ours":  {kubeconfig: 89 * 24 * time.Hour, want: []string{"c1-kubeconfig"}},
		"a kubeconfig with enough time": {kubeconfig: 91 * 24 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScope(1)
			s.certificates, s.now = certificates, s.now.Add(tc.later)
			if tc.kubeconfig > 0 {
				s.kubeconfigExpiry = s.now.Add(tc.kubeconfig)
			}
			recorder := events.NewFakeRecorder(10)
			r := &Reconciler{Recorder: recorder}
			for range 2 {
				r.tellExpiry(s)
				conditions.Set(s.controlPlane, certificatesCondition(s))
			}
			condition := conditions.Get(s.controlPlane, controlplanev1.CertificatesAvailableCondition)
			require.Equal(t, metav1.ConditionTrue, condition.Status)
			if len(tc.want) == 0 {
				require.Equal(t, clusterv1.AvailableReason, condition.Reason)
				require.Empty(t, recorder.Events)
				return
			}
			require.Equal(t, controlplanev1.CertificatesExpireSoonReason, condition.Reason)
			require.Equal(t, len(tc.want), strings.Count(condition.Message, "* "))
			for _, secret := range tc.want {
				require.Contains(t, condition.Message, "Secret "+secret+": a certificate expires on ")
			}
			require.Len(t, recorder.Events, 1, "said once")
		})
	}
}

// Reconciles come often, and each event is a write.
func TestTellHolds_SaysAgainOnlyWhatChanged(t *testing.T) {
	recorder := events.NewFakeRecorder(10)
	r := &Reconciler{Recorder: recorder}
	s := newScope(2)
	s.controlPlane.Spec.Replicas = ptr.To[int32](3)
	for _, step := range []struct {
		name  string
		holds []string
		want  []string
	}{
		{name: "first", holds: []string{"m1 is down"}, want: []string{"m1 is down"}},
		{name: "the same", holds: []string{"m1 is down"}},
		{name: "one more", holds: []string{"m0 is down", "m1 is down"}, want: []string{"m0 is down"}},
		{name: "one less", holds: []string{"m0 is down"}},
		{name: "none"},
		{name: "again", holds: []string{"m0 is down"}, want: []string{"m0 is down"}},
	} {
		p := &plan{}
		p.hold(scaleUp, step.holds...)
		r.tellHolds(s, p)
		for _, condition := range computeConditions(s, p) {
			conditions.Set(s.controlPlane, condition)
		}
		require.Len(t, recorder.Events, len(step.want), step.name)
		for _, want := range step.want {
			require.Contains(t, <-recorder.Events, "ControlPlaneUnhealthy scale up waits: "+want, step.name)
		}
	}
}

// newCertificates are those of a new cluster.
func newCertificates(t *testing.T) *certs.Set {
	t.Helper()
	cluster := testenv.Cluster(env.Namespace(t), "c1")
	controlPlane := testenv.ControlPlane(cluster)
	env.Create(t, cluster, controlPlane)
	set, err := certs.Reconcile(context.Background(), certs.Input{
		Client: env.Client, APIReader: env.Client, Recorder: events.NewFakeRecorder(10), Cluster: cluster, ControlPlane: controlPlane,
		Now: func() time.Time { return testTime },
	})
	require.NoError(t, err)
	return set
}

// B4: Nodes of K3s before and since 1.34 give the same status.
func TestMemberHealth_DoesNotDependOnTheLabelOfOldVersions(t *testing.T) {
	s := newScope(3)
	s.workload.nodes["m1"].Labels["node-role.kubernetes.io/master"] = "true"
	for name, machine := range s.machines {
		require.True(t, k3s.IsControlPlaneNode(s.workload.nodes[name]))
		status, message := s.memberHealth(machine)
		assert.Equal(t, metav1.ConditionTrue, status, message)
	}
}

func TestMachineConditions_NameTheProblem(t *testing.T) {
	cases := []struct {
		name     string
		change   func(*scope)
		upToDate metav1.ConditionStatus
		member   metav1.ConditionStatus
		message  string
	}{
		{name: "good", upToDate: metav1.ConditionTrue, member: metav1.ConditionTrue},
		{name: "the kubelet runs another version", change: func(s *scope) {
			s.machines["m0"].Status.NodeInfo.KubeletVersion = "v1.36.2+k3s1"
		}, upToDate: metav1.ConditionFalse, member: metav1.ConditionTrue, message: "v1.36.2+k3s1"},
		{
			name: "no member", change: func(s *scope) { removeMemberOf(s, "m0") },
			upToDate: metav1.ConditionTrue, member: metav1.ConditionFalse, message: "no member",
		},
		{
			name: "learner", change: func(s *scope) { s.workload.members[0].IsLearner = true },
			upToDate: metav1.ConditionTrue, member: metav1.ConditionFalse, message: "learner",
		},
		{name: "stale heartbeat", change: func(s *scope) {
			s.workload.nodes["m0"].Status.Conditions[1].LastHeartbeatTime = metav1.NewTime(testTime.Add(-8 * 60e9))
		}, upToDate: metav1.ConditionTrue, member: metav1.ConditionUnknown, message: "heartbeat"},
		{
			name: "unreachable", change: func(s *scope) { s.workload.membersErr = errors.New("down") },
			upToDate: metav1.ConditionTrue, member: metav1.ConditionUnknown, message: "down",
		},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			s := newScope(1)
			if tc.change != nil {
				tc.change(s)
			}
			got := machineConditions(s, s.machines["m0"])
			require.Len(t, got, 2)
			assert.Equal(t, tc.upToDate, got[0].Status)
			assert.Equal(t, tc.member, got[1].Status)
			assert.Contains(t, got[0].Message+got[1].Message, tc.message)
		})
	}
}

// B12: the status has the versions that run, the lowest first.
func TestReportVersions_ListsWhatRunsLowestFirst(t *testing.T) {
	s := newScope(3)
	s.machines["m0"].Status.NodeInfo.KubeletVersion = "v1.36.3+k3s10"
	s.machines["m1"].Status.NodeInfo.KubeletVersion = "v1.36.3+k3s2"
	s.machines["m2"].Status.NodeInfo = nil
	reportVersions(s)
	assert.Equal(t, []clusterv1.StatusVersion{
		{Version: "v1.36.3+k3s1", Replicas: 1}, {Version: "v1.36.3+k3s2", Replicas: 1}, {Version: "v1.36.3+k3s10", Replicas: 1},
	}, s.controlPlane.Status.Versions)
	assert.Equal(t, "v1.36.3+k3s1", s.controlPlane.Status.Version)
}

func TestReportReplicas_CountsConditions(t *testing.T) {
	s := newScope(3)
	set := func(name string, types ...string) {
		for _, c := range types {
			s.machines[name].Status.Conditions = append(s.machines[name].Status.Conditions, metav1.Condition{Type: c, Status: metav1.ConditionTrue})
		}
	}
	set("m0", clusterv1.MachineReadyCondition, clusterv1.MachineAvailableCondition, clusterv1.MachineUpToDateCondition)
	set("m1", clusterv1.MachineReadyCondition)
	reportReplicas(s)
	status := s.controlPlane.Status
	assert.Equal(t, []int32{3, 2, 1, 1}, []int32{*status.Replicas, *status.ReadyReplicas, *status.AvailableReplicas, *status.UpToDateReplicas})
	assert.Contains(t, status.Selector, "cluster.x-k8s.io/control-plane-name=cp")
}

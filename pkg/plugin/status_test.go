package plugin_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
	"github.com/capk3s/capk3s/test/testenv"
)

// status is what the tests read of the command's JSON.
type status struct {
	Cluster, ControlPlane, Version string
	Paused                         bool
	Replicas                       struct{ Desired, Current, Ready *int32 }
	Servers                        []struct {
		Machine, Node, Version, Ready, UpToDate, EtcdMember, EtcdMemberHealthy, EtcdMemberMessage string
	}
	Etcd struct {
		ExternalDatastore       bool
		Healthy, Message        string
		Members, HealthyMembers int
	}
	Custody    []kept
	Conditions []metav1.Condition
}

type kept struct {
	Secret                           string
	Exists, ControlledByControlPlane bool
	Controller                       string
	Expires                          *time.Time
}

func (s *status) secret(t *testing.T, name string) kept {
	t.Helper()
	for _, k := range s.Custody {
		if k.Secret == name {
			return k
		}
	}
	require.Failf(t, "no such Secret", "%s isn't in %+v", name, s.Custody)
	return kept{}
}

func TestStatus_ShowsServersWithTheirEtcdMembers(t *testing.T) {
	f := newFixture(t)
	f.server(t, "m0", map[string]metav1.ConditionStatus{
		"Ready": "True", "UpToDate": "True", controlplanev1.MachineEtcdMemberHealthyCondition: "True",
	})
	f.server(t, "m1", map[string]metav1.ConditionStatus{"Ready": "False", controlplanev1.MachineEtcdMemberHealthyCondition: "False"})
	env.Create(t, testenv.Machine(f.cluster, "worker"))

	f.controlPlane.Status.Conditions = []metav1.Condition{{
		Type: controlplanev1.EtcdClusterHealthyCondition, Status: "False", Reason: "NotHealthy", Message: "* one\n* two", LastTransitionTime: metav1.Now(),
	}}
	require.NoError(t, env.Client.Status().Update(context.Background(), f.controlPlane))

	result, r := runJSON[status](t, f, "status", "c")
	require.Zero(t, r.code, r.err)
	require.Len(t, result.Servers, 2, "the worker is no server")
	m0, m1 := result.Servers[0], result.Servers[1]
	assert.Equal(t, []string{"m0", "m0-node", testenv.Version, "True", "True", "m0-member", "True"},
		[]string{m0.Machine, m0.Node, m0.Version, m0.Ready, m0.UpToDate, m0.EtcdMember, m0.EtcdMemberHealthy})
	assert.Equal(t, []string{"False", "Unknown", "False", "because of EtcdMemberHealthy"},
		[]string{m1.Ready, m1.UpToDate, m1.EtcdMemberHealthy, m1.EtcdMemberMessage})
	assert.Equal(t, "False", result.Etcd.Healthy)
	assert.Equal(t, []int{2, 1}, []int{result.Etcd.Members, result.Etcd.HealthyMembers})
	require.Len(t, result.Conditions, 1)

	text := f.run(t, "status", "c")
	require.Zero(t, text.code, text.err)
	for _, wanted := range []string{
		`Etcd: +healthy: False, 2 members known, 1 of them healthy; \* one \* two`,
		`m0 +m0-node +` + `v1\.36\.3\+k3s1 +True +True +m0-member +True`, `m1 .+ False +Unknown +m1-member +False`,
		`EtcdClusterHealthy +False +NotHealthy +\S+ +\* one \* two\n`,
	} {
		assert.Regexp(t, wanted, text.out)
	}
}

func TestStatus_WithAnExternalDatastoreHasNoMembers(t *testing.T) {
	f := newFixture(t)
	f.cluster = testenv.Cluster(f.cluster.Namespace, "external")
	env.Create(t, f.cluster)
	f.controlPlane = testenv.ControlPlane(f.cluster, func(c *controlplanev1.KThreesControlPlane) {
		c.Spec.KThreesConfigSpec.ServerConfig.Datastore = bootstrapv1.DatastoreSpec{Endpoint: "https://db.example.com:2379"}
	})
	env.Create(t, f.controlPlane)
	f.server(t, "m0", nil)
	result, r := runJSON[status](t, f, "status", "external")
	require.Zero(t, r.code, r.err)
	assert.True(t, result.Etcd.ExternalDatastore)
	require.Len(t, result.Servers, 1)
	assert.Empty(t, result.Servers[0].EtcdMember+result.Servers[0].EtcdMemberHealthy)
	assert.Contains(t, f.run(t, "status", "external").out, "external datastore")
}

func TestStatus_ShowsWhoControlsTheSecretsAndWhenTheyExpire(t *testing.T) {
	f := newFixture(t)
	f.keepCustody(t)
	result, r := runJSON[status](t, f, "status", "c")
	require.Zero(t, r.code, r.err)
	inTenYears, inOneYear := time.Now().Add(3650*24*time.Hour), time.Now().Add(365*24*time.Hour)
	for name, expiry := range map[string]*time.Time{
		"c-token": nil, "c-sa": nil, "c-ca": &inTenYears, "c-cca": &inTenYears, "c-etcd": &inTenYears, "c-etcd-peer": &inTenYears,
		"c-proxy": &inTenYears, "c-root": &inTenYears, "c-kubeconfig": &inOneYear,
	} {
		k := result.secret(t, name)
		assert.Truef(t, k.Exists && k.ControlledByControlPlane, "%+v", k)
		assert.Equal(t, "KThreesControlPlane/c-control-plane", k.Controller)
		if expiry == nil {
			assert.Nil(t, k.Expires, name)
			continue
		}
		require.NotNil(t, k.Expires, name)
		assert.WithinDuration(t, *expiry, *k.Expires, time.Minute, name)
	}
}

func TestStatus_ShowsWhatIsWrongInCustody(t *testing.T) {
	f := newFixture(t)
	f.keepCustody(t)
	f.remove(t, "c-token")
	f.change(t, "c-etcd", func(s *corev1.Secret) { s.OwnerReferences = nil })
	f.change(t, "c-cca", func(s *corev1.Secret) { s.OwnerReferences[0].UID = "older" })
	f.change(t, "c-ca", func(s *corev1.Secret) { s.Data["tls.crt"] = bundleOf(newAuthority(t, time.Now().Add(-time.Hour))) })
	f.change(t, "c-proxy", func(s *corev1.Secret) {
		s.Data["tls.crt"] = bundleOf(newAuthority(t, time.Now().Add(30*24*time.Hour+time.Hour)))
	})

	result, r := runJSON[status](t, f, "status", "c")
	require.Zero(t, r.code, r.err)
	assert.False(t, result.secret(t, "c-token").Exists)
	assert.Empty(t, result.secret(t, "c-etcd").Controller)
	assert.Equal(t, "KThreesControlPlane/c-control-plane", result.secret(t, "c-cca").Controller)
	assert.False(t, result.secret(t, "c-cca").ControlledByControlPlane)

	text := f.run(t, "status", "c")
	require.Zero(t, text.code, text.err)
	for _, wanted := range []string{
		`c-token +no +- +-\n`, `c-etcd +yes +none`, `c-cca +yes +KThreesControlPlane/c-control-plane \(not this control plane\)`,
		`c-ca +yes .+\(expired\)\n`, `c-proxy +yes .+\(in 30d\)\n`,
	} {
		assert.Regexp(t, wanted, text.out)
	}
}

func TestStatus_SaysThatTheControlPlaneIsPaused(t *testing.T) {
	f := newFixture(t)
	assert.NotContains(t, f.run(t, "status", "c").out, "paused")
	require.Zero(t, f.run(t, "rollout", "pause", "c").code)
	assert.Contains(t, f.run(t, "status", "c").out, testenv.Version+", paused\n")
	result, _ := runJSON[status](t, f, "status", "c")
	assert.True(t, result.Paused)
}

func TestStatus_WritesNothing(t *testing.T) {
	f := newFixture(t)
	f.keepCustody(t)
	machine := f.server(t, "m0", nil)
	versions := func() (versions []string) {
		for _, obj := range []client.Object{f.cluster, f.controlPlane, machine} {
			env.Refresh(t, obj)
			versions = append(versions, obj.GetResourceVersion())
		}
		return versions
	}
	before := versions()
	require.Zero(t, f.run(t, "status", "c").code)
	assert.Equal(t, before, versions())
	list := &clusterv1.MachineList{}
	require.NoError(t, env.Client.List(context.Background(), list, client.InNamespace(f.cluster.Namespace)))
	assert.Len(t, list.Items, 1)
}

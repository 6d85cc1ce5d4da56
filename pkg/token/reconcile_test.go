package token_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
	"github.com/capk3s/capk3s/pkg/custody"
	"github.com/capk3s/capk3s/pkg/token"
	"github.com/capk3s/capk3s/test/testenv"
)

func TestReconcile_MakesATokenForANewCluster(t *testing.T) {
	f := newFixture(t)
	made, err := f.reconcile()
	require.NoError(t, err)

	require.Regexp(t, "^[0-9a-f]{32}$", made.Server)
	require.Regexp(t, "^[0-9a-f]{32}$", made.Agent)
	require.NotEqual(t, made.Server, made.Agent)
	secret := f.read(t)
	require.Equal(t, map[string][]byte{"value": []byte(made.Server), "agent-token": []byte(made.Agent)}, secret.Data)
	require.Equal(t, clusterv1.ClusterSecretType, secret.Type)
	require.Equal(t, []metav1.OwnerReference{custody.Reference(f.ControlPlane)}, secret.OwnerReferences)
	require.Equal(t, map[string]string{
		"cluster.x-k8s.io/cluster-name": "c", "clusterctl.cluster.x-k8s.io/move": "", controlplanev1.ManagedLabel: "",
	}, secret.Labels)
	require.Contains(t, strings.Join(f.events(), "\n"), token.CreatedEvent)
}

func TestReconcile_WritesNothingTheSecondTime(t *testing.T) {
	f := newFixture(t)
	made, err := f.reconcile()
	require.NoError(t, err)
	f.data = []token.Token{*made}
	f.cached.Reset()
	f.live.Reset()

	again, err := f.reconcile()
	require.NoError(t, err)
	require.True(t, *made == *again)
	require.Equal(t, []testenv.Call{{Verb: testenv.Get, Type: "*v1.Secret", Name: "c-token"}}, f.cached.Calls())
	require.Empty(t, f.live.Calls())
	require.Empty(t, f.judged)
	require.Zero(t, f.recovered)
}

func TestReconcile_ParallelReconcilersAgreeOnOneToken(t *testing.T) {
	f := newFixture(t)
	const reconcilers = 10
	tokens := make([]*token.Token, reconcilers)
	errs := make([]error, reconcilers)
	var all sync.WaitGroup
	for i := range reconcilers {
		all.Go(func() { tokens[i], errs[i] = f.reconcile() })
	}
	all.Wait()

	stored := string(f.read(t).Data["value"])
	for i := range reconcilers {
		require.NoError(t, errs[i])
		require.True(t, stored == tokens[i].Server)
	}
}

func TestReconcile_NeverMakesATokenForAFoundedCluster(t *testing.T) {
	for name, arrange := range map[string]func(f *fixture){
		"initialized, no data":          func(f *fixture) { f.Initialized = true },
		"machines with unreadable data": func(f *fixture) { f.data = []token.Token{{}} },
		"workers' data only":            func(f *fixture) { f.data = []token.Token{{Agent: agentToken}} },
		"refused data": func(f *fixture) {
			f.Initialized = true
			f.data = []token.Token{{Server: oldToken}}
			f.verdicts[oldToken] = token.Refused
		},
		"a server's token that K3s would refuse": func(f *fixture) {
			f.Initialized = true
			f.onServer = &token.Token{}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			arrange(f)
			_, err := f.reconcile()
			f.requireReason(t, err, controlplanev1.TokenLostReason)
			f.requireAbsent(t)
			require.Equal(t, 1, f.recovered)
		})
	}
}

func TestReconcile_MakesNoTokenWhileTheAPIServerKnowsMoreThanTheCache(t *testing.T) {
	f := newFixture(t)
	env.Create(t, testenv.Machine(f.Cluster, "m", func(m *clusterv1.Machine) { m.Spec.Bootstrap.DataSecretName = ptr.To("m") }))
	_, err := f.reconcile()
	require.ErrorContains(t, err, "Machine m has bootstrap data")
	f.requireAbsent(t)
}

func TestReconcile_PutsTheTokenOfTheBootstrapDataBack(t *testing.T) {
	f := newFixture(t)
	f.Initialized = true
	f.data = []token.Token{{Agent: "worker"}, {}, {Server: newToken}, {Server: oldToken}, {Server: oldToken, Agent: agentToken}}
	f.verdicts = map[string]token.Verdict{newToken: token.Refused, oldToken: token.Accepted}

	got, err := f.reconcile()
	require.NoError(t, err)
	require.True(t, token.Token{Server: oldToken, Agent: agentToken} == *got)
	secret := f.read(t)
	require.Equal(t, map[string][]byte{"value": []byte(oldToken), "agent-token": []byte(agentToken)}, secret.Data)
	require.Equal(t, []metav1.OwnerReference{custody.Reference(f.ControlPlane)}, secret.OwnerReferences)
	require.Contains(t, secret.Labels, controlplanev1.ManagedLabel)
	require.Equal(t, []string{newToken, oldToken, oldToken}, f.judged, "once to put it back, once to use it, of which Verdicts saves one")
	require.Zero(t, f.recovered)
	events := strings.Join(f.events(), "\n")
	require.Contains(t, events, token.RestoredEvent)
	require.NotContains(t, events, secretPart)
}

func TestReconcile_WaitsForAServerBeforeItPutsATokenBack(t *testing.T) {
	f := newFixture(t)
	f.data = []token.Token{{Server: oldToken}}
	_, err := f.reconcile()
	f.requireReason(t, err, controlplanev1.TokenUnverifiedReason)
	f.requireAbsent(t)

	f.verdicts[oldToken] = token.Accepted
	got, err := f.reconcile()
	require.NoError(t, err)
	require.True(t, got.Server == oldToken && got.Agent == "")
	require.NotContains(t, f.read(t).Data, "agent-token")
}

func TestReconcile_PutsBackTheTokenThatALiveServerHolds(t *testing.T) {
	f := newFixture(t)
	f.Initialized = true
	f.data = []token.Token{{Server: oldToken}}
	f.verdicts = map[string]token.Verdict{oldToken: token.Refused, newToken: token.Accepted}
	f.onServer = &token.Token{Server: newToken, Agent: agentToken}

	got, err := f.reconcile()
	require.NoError(t, err)
	require.True(t, *f.onServer == *got)
	require.Equal(t, newToken, string(f.read(t).Data["value"]))
}

func TestReconcile_LetsTheClusterJudgeAnotherValue(t *testing.T) {
	for name, tc := range map[string]struct {
		verdict token.Verdict
		reason  string
	}{
		"accepted: the user rotated it": {token.Accepted, ""},
		"refused":                       {token.Refused, controlplanev1.TokenDriftedReason},
		"no server answers":             {token.Unreachable, controlplanev1.TokenUnverifiedReason},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.Initialized = true
			f.create(t, map[string]string{"value": newToken})
			f.data = []token.Token{{Server: oldToken}, {Agent: agentToken}}
			f.verdicts[newToken] = tc.verdict

			got, err := f.reconcile()
			require.Equal(t, []string{newToken}, f.judged)
			require.Equal(t, newToken, string(f.read(t).Data["value"]))
			if tc.reason != "" {
				f.requireReason(t, err, tc.reason)
				require.Nil(t, got)
				return
			}
			require.NoError(t, err)
			require.True(t, got.Server == newToken)
		})
	}
}

func TestReconcile_KeepsMachinesFromATokenThatTheServersRefuse(t *testing.T) {
	f := newFixture(t)
	f.create(t, map[string]string{"value": newToken})
	f.data = []token.Token{{Server: oldToken}}
	lookup := func() (*token.Token, error) {
		return token.Lookup(context.Background(), env.Client, client.ObjectKeyFromObject(f.Cluster))
	}
	for _, step := range []struct {
		verdict token.Verdict
		reason  string
		writes  int
	}{
		{token.Unreachable, controlplanev1.TokenUnverifiedReason, 2},
		{token.Unreachable, controlplanev1.TokenUnverifiedReason, 0},
		{token.Refused, controlplanev1.TokenDriftedReason, 1},
		{token.Refused, controlplanev1.TokenDriftedReason, 0},
	} {
		f.verdicts[newToken] = step.verdict
		f.cached.Reset()
		_, err := f.reconcile()
		f.requireReason(t, err, step.reason)
		require.Len(t, f.cached.Writes(), step.writes)
		_, err = lookup()
		f.requireReason(t, err, step.reason)
		stored, err := token.Stored(context.Background(), env.Client, client.ObjectKeyFromObject(f.Cluster))
		require.NoError(t, err)
		require.True(t, stored.Server == newToken)
	}

	f.verdicts[newToken] = token.Accepted
	f.cached.Reset()
	_, err := f.reconcile()
	require.NoError(t, err)
	require.Len(t, f.cached.Writes(), 1)
	got, err := lookup()
	require.NoError(t, err)
	require.True(t, got.Server == newToken)
	require.Empty(t, f.read(t).Annotations)
}

func TestReconcile_AsksNobodyOnceEveryServerWasStartedWithTheRotatedToken(t *testing.T) {
	f := newFixture(t)
	f.create(t, map[string]string{"value": newToken})
	f.data = []token.Token{{Server: newToken}, {}, {Agent: agentToken}, {Server: newToken}}
	_, err := f.reconcile()
	require.NoError(t, err)
	require.Empty(t, f.judged)
}

func TestReconcile_LeavesAnInvalidTokenUntouched(t *testing.T) {
	for name, data := range map[string]map[string]string{
		"no value":                      {"other": "5ec2e7"},
		"empty value":                   {"value": ""},
		"trailing newline":              {"value": oldToken + "\n"},
		"shaped like a bootstrap token": {"value": "5ec2e7.0123456789abcdef"},
		"full form that is none":        {"value": "K105ec2e7"},
		"empty agent token":             {"value": oldToken, "agent-token": ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.Initialized = true
			before := f.create(t, data)
			_, err := f.reconcile()
			f.requireReason(t, err, controlplanev1.TokenInvalidReason)
			require.Empty(t, f.cached.Writes())
			require.Equal(t, before.ResourceVersion, f.read(t).ResourceVersion)
		})
	}
}

func TestReconcile_UsesTheUsersSecret(t *testing.T) {
	t.Run("of Cluster API's type: adopted", func(t *testing.T) {
		f := newFixture(t)
		f.create(t, map[string]string{"value": oldToken}, func(s *corev1.Secret) { s.Labels = nil })
		got, err := f.reconcile()
		require.NoError(t, err)
		require.True(t, token.Token{Server: oldToken} == *got)
		require.True(t, metav1.IsControlledBy(f.read(t), f.ControlPlane))
		require.NotContains(t, f.read(t).Labels, controlplanev1.ManagedLabel)
	})
	t.Run("of another type: only labelled", func(t *testing.T) {
		f := newFixture(t)
		f.create(t, map[string]string{"value": oldToken, "agent-token": agentToken}, func(s *corev1.Secret) {
			s.Type, s.Labels = corev1.SecretTypeOpaque, nil
		})
		got, err := f.reconcile()
		require.NoError(t, err)
		require.True(t, token.Token{Server: oldToken, Agent: agentToken} == *got)
		secret := f.read(t)
		require.Empty(t, secret.OwnerReferences)
		require.Equal(t, map[string]string{"cluster.x-k8s.io/cluster-name": "c", "clusterctl.cluster.x-k8s.io/move": ""}, secret.Labels)
		require.Len(t, f.cached.Writes(), 1)
	})
	t.Run("without the label that the cache selects by: found by the API server", func(t *testing.T) {
		f := newFixture(t)
		f.create(t, map[string]string{"value": oldToken})
		f.Client = testenv.FailOn(f.Client.(client.WithWatch), testenv.Get, 1, notFound())
		got, err := f.reconcile()
		require.NoError(t, err)
		require.True(t, got.Server == oldToken)
	})
}

func notFound() error { return apierrors.NewNotFound(corev1.Resource("secrets"), "c-token") }

// An error is not an absence: it comes back, and nothing is written.
func TestReconcile_ReturnsErrorsAndWritesNothing(t *testing.T) {
	broken := apierrors.NewInternalError(errors.New("etcd is on fire"))
	fail := func(c any, verb testenv.Verb, nth int) client.WithWatch {
		return testenv.FailOn(c.(client.WithWatch), verb, nth, broken)
	}
	for name, arrange := range map[string]func(f *fixture){
		"cached read":                    func(f *fixture) { f.Client = fail(f.Client, testenv.Get, 1) },
		"live read of the Secret":        func(f *fixture) { f.APIReader = fail(f.APIReader, testenv.Get, 1) },
		"live read of the control plane": func(f *fixture) { f.APIReader = fail(f.APIReader, testenv.Get, 2) },
		"live read of the Cluster":       func(f *fixture) { f.APIReader = fail(f.APIReader, testenv.Get, 3) },
		"live list of the Machines":      func(f *fixture) { f.APIReader = fail(f.APIReader, testenv.List, 1) },
		"bootstrap data": func(f *fixture) {
			f.DataTokens = func(context.Context) ([]token.Token, error) { return nil, broken }
		},
		"the judge": func(f *fixture) {
			f.data = []token.Token{{Server: oldToken}}
			f.Judge = func(context.Context, string) (token.Verdict, error) { return token.Accepted, broken }
		},
		"the server": func(f *fixture) {
			f.Initialized = true
			f.Recover = func(context.Context) (*token.Token, error) { return nil, broken }
		},
		"create": func(f *fixture) { f.Client = fail(f.Client, testenv.Create, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			arrange(f)
			got, err := f.reconcile()
			require.ErrorIs(t, err, broken)
			require.Nil(t, got)
			require.Empty(t, f.cached.Writes())
			f.requireAbsent(t)
			f.requireSilence(t, err)
		})
	}
}

func TestReconcile_CarriesOnAfterAFailedPatch(t *testing.T) {
	f := newFixture(t)
	f.create(t, map[string]string{"value": oldToken})
	working := f.Client
	f.Client = testenv.FailOn(working.(client.WithWatch), testenv.Patch, 1, errors.New("connection lost"))
	_, err := f.reconcile()
	require.ErrorContains(t, err, "connection lost")

	f.Client = working
	_, err = f.reconcile()
	require.NoError(t, err)
	require.Equal(t, []metav1.OwnerReference{custody.Reference(f.ControlPlane)}, f.read(t).OwnerReferences)
}

func TestReconcile_UsesWhatAConcurrentWriterLeft(t *testing.T) {
	t.Run("value changed before our patch", func(t *testing.T) {
		f := newFixture(t)
		f.create(t, map[string]string{"value": oldToken})
		f.Client = testenv.Before(f.Client.(client.WithWatch), testenv.Patch, 1, func(testenv.Call) error {
			other := f.read(t)
			other.Data["value"] = []byte(newToken)
			return env.Client.Update(context.Background(), other)
		})
		got, err := f.reconcile()
		require.NoError(t, err)
		require.True(t, got.Server == newToken)
		require.Equal(t, newToken, string(f.read(t).Data["value"]))
	})
	t.Run("Secret made before our create", func(t *testing.T) {
		f := newFixture(t)
		f.Client = testenv.Before(f.Client.(client.WithWatch), testenv.Create, 1, func(testenv.Call) error {
			f.create(t, map[string]string{"value": oldToken})
			return nil
		})
		got, err := f.reconcile()
		require.NoError(t, err)
		require.True(t, got.Server == oldToken)
		require.True(t, metav1.IsControlledBy(f.read(t), f.ControlPlane))
	})
}

// A restore dates the Machines anew, so that their order says nothing.
func TestReconcile_LetsTheClusterJudgeATokenFromBeforeARotation(t *testing.T) {
	for name, data := range map[string][]token.Token{
		"the newest server has the newer one": {{}, {Server: newToken}, {Server: oldToken}},
		"the newest server has it too":        {{Server: oldToken}, {Server: newToken}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.Initialized = true
			f.create(t, map[string]string{"value": oldToken})
			f.data = data
			f.verdicts[oldToken] = token.Refused
			_, err := f.reconcile()
			f.requireReason(t, err, controlplanev1.TokenDriftedReason)
			require.Equal(t, []string{oldToken}, f.judged)
		})
	}
}

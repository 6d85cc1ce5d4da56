package token_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capk3s/capk3s/pkg/token"
	"github.com/capk3s/capk3s/test/testenv"
)

var env *testenv.Env

func TestMain(m *testing.M) { testenv.Main(m, &env) }

// The tokens of the tests have one part in common, which no message may contain.
const (
	oldToken   = "5ec2e7-old"
	newToken   = "5ec2e7-new"
	agentToken = "5ec2e7-agent"
	secretPart = "5ec2e7"
)

// fixture is a cluster named c and the surroundings that Reconcile asks.
type fixture struct {
	token.Input
	cached, live *testenv.Counter
	recorder     *events.FakeRecorder

	data      []token.Token
	verdicts  map[string]token.Verdict
	judged    []string
	onServer  *token.Token
	recovered int
}

func newFixture(t *testing.T) *fixture {
	cluster := testenv.Cluster(env.Namespace(t), "c")
	env.Create(t, cluster)
	controlPlane := testenv.ControlPlane(cluster)
	env.Create(t, controlPlane)
	f := &fixture{recorder: events.NewFakeRecorder(100), verdicts: map[string]token.Verdict{}}
	f.Input = token.Input{
		Recorder: f.recorder, Cluster: cluster, ControlPlane: controlPlane, Now: time.Now,
		DataTokens: func(context.Context) ([]token.Token, error) { return f.data, nil },
		Judge: func(_ context.Context, server string) (token.Verdict, error) {
			f.judged = append(f.judged, server)
			return f.verdicts[server], nil
		},
		Recover: func(context.Context) (*token.Token, error) {
			f.recovered++
			return f.onServer, nil
		},
	}
	f.Client, f.cached = testenv.Count(env.Client)
	var live client.WithWatch
	live, f.live = testenv.Count(env.Client)
	f.APIReader = live
	return f
}

func (f *fixture) reconcile() (*token.Token, error) {
	return token.Reconcile(context.Background(), f.Input)
}

// create makes the token Secret as somebody else would.
func (f *fixture) create(t *testing.T, data map[string]string, change ...func(*corev1.Secret)) *corev1.Secret {
	secret := testenv.Secret(f.Cluster, "c-token", data, change...)
	env.Create(t, secret)
	return secret
}

func (f *fixture) read(t *testing.T) *corev1.Secret {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: f.Cluster.Namespace, Name: "c-token"}}
	env.Refresh(t, secret)
	return secret
}

func (f *fixture) requireAbsent(t *testing.T) {
	t.Helper()
	err := env.Client.Get(context.Background(), client.ObjectKey{Namespace: f.Cluster.Namespace, Name: "c-token"}, &corev1.Secret{})
	require.True(t, apierrors.IsNotFound(err), "the Secret exists: %v", err)
}

// requireReason checks the reason of an error and that it gives nothing away.
func (f *fixture) requireReason(t *testing.T, err error, reason string) {
	t.Helper()
	var typed *token.Error
	require.ErrorAs(t, err, &typed)
	require.Equal(t, reason, typed.Reason)
	require.NotEmpty(t, typed.Message)
	f.requireSilence(t, err)
}

// requireSilence checks that neither an error nor an event so far contains a token.
func (f *fixture) requireSilence(t *testing.T, err error) {
	t.Helper()
	require.NotContains(t, fmt.Sprintf("%+v %#v", err, err), secretPart)
	for _, event := range f.events() {
		require.NotContains(t, event, secretPart)
	}
}

func (f *fixture) events() []string {
	var all []string
	for {
		select {
		case event := <-f.recorder.Events:
			all = append(all, event)
		default:
			return all
		}
	}
}

func controllerRef(apiVersion, kind, name string) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: name, UID: "7e57", Controller: ptr.To(true)}
}

func ownerRef(apiVersion, kind, name, uid string) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: name, UID: types.UID(uid)}
}

func ownedBy(refs ...metav1.OwnerReference) func(*corev1.Secret) {
	return func(secret *corev1.Secret) { secret.OwnerReferences = refs }
}

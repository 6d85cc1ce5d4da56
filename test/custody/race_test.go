package custody

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
	bootstrapcontrollers "github.com/capk3s/capk3s/bootstrap/controllers"
	"github.com/capk3s/capk3s/pkg/certs"
	"github.com/capk3s/capk3s/pkg/token"
	"github.com/capk3s/capk3s/test/testenv"
	"github.com/capk3s/capk3s/test/totals"
)

// crowd is how many KThreesConfigs of one cluster are reconciled at once.
const crowd = 50

// There is one token, and one set of CAs, whoever was first, and every machine gets them: among many configs, an
// operator that doesn't know yet that it leads no more, and a user.
func TestRaces(t *testing.T) {
	startCore(t, env)
	run(t, newManager(t, env, "operator"))
	var races, users atomic.Int64
	t.Run("races", func(t *testing.T) {
		t.Run("many configs while the token is made", func(t *testing.T) {
			t.Parallel()
			s := newRace(t, crowd)
			configs := list(s, &bootstrapv1.KThreesConfigList{}).Items
			s.pause(false)
			s.awaitSecrets(1)
			var all sync.WaitGroup
			for _, config := range configs {
				all.Go(func() { s.reconcileConfig(client.ObjectKeyFromObject(&config)) })
			}
			all.Go(s.keepAsAFormerLeader)
			all.Wait()
			s.requireOneToken(crowd, false)
			races.Add(1)
		})
		for i := range 3 * thoroughness {
			secrets := len(custodySuffixes) - 1 - i%3
			t.Run(fmt.Sprintf("a user makes the token when %d other Secrets are there, %d", secrets, i), func(t *testing.T) {
				t.Parallel()
				s := newRace(t, 1)
				s.pause(false)
				var other sync.WaitGroup
				other.Go(s.keepAsAFormerLeader)
				s.awaitSecrets(secrets)
				won := s.createToken()
				other.Wait()
				s.requireOneToken(1, won)
				races.Add(1)
				if won {
					users.Add(1)
				}
			})
		}
	})
	totals.Print("races run", "%d, of which a user won %d", races.Load(), users.Load())
}

// newRace is a paused cluster with workers that wait for it.
func newRace(t *testing.T, workers int) *stage {
	t.Helper()
	s := newStage(t, func(c *clusterv1.Cluster) { c.Spec.Paused = ptr.To(true) })
	for i := range workers {
		s.addWorker(fmt.Sprintf("%s-w%d", s.name, i))
	}
	return s
}

// awaitSecrets waits for so many Secrets of the cluster's control plane, which makes the token last.
func (s *stage) awaitSecrets(n int) {
	s.Helper()
	require.Eventually(s, func() bool { return len(s.readSecrets()) >= n }, patience, time.Millisecond)
}

// reconcileConfig reconciles a config some times, besides the operators that do.
func (s *stage) reconcileConfig(key client.ObjectKey) {
	r := &bootstrapcontrollers.Reconciler{Client: s.env.Client, APIReader: s.env.Client, Recorder: &recorder{sink: spoken}}
	for range 3 {
		if _, err := r.Reconcile(background, ctrl.Request{NamespacedName: key}); err != nil {
			spoken.add(err.Error())
		}
	}
}

// keepAsAFormerLeader looks after the Secrets until all of them are there, besides the operator that does.
func (s *stage) keepAsAFormerLeader() {
	ctx, recorder := background, &recorder{sink: spoken}
	cluster := &clusterv1.Cluster{ObjectMeta: s.meta()}
	s.env.Refresh(s, cluster)
	cp := s.controlPlane()
	for len(s.readSecrets()) < len(custodySuffixes) {
		_, err := certs.Reconcile(ctx, certs.Input{
			Client: s.env.Client, APIReader: s.env.Client, Recorder: recorder, Cluster: cluster, ControlPlane: cp, Now: time.Now,
			Recover: func(context.Context) (map[certs.Purpose]certs.KeyPair, error) { return nil, nil },
		})
		if err != nil {
			spoken.add(err.Error())
		}
		_, err = token.Reconcile(ctx, token.Input{
			Client: s.env.Client, APIReader: s.env.Client, Recorder: recorder, Cluster: cluster, ControlPlane: cp, Now: time.Now,
			DataTokens: func(context.Context) ([]token.Token, error) { return nil, nil },
			Judge:      func(context.Context, string) (token.Verdict, error) { return token.Unreachable, nil },
			Recover:    func(context.Context) (*token.Token, error) { return nil, nil },
		})
		if err != nil {
			spoken.add(err.Error())
		}
	}
}

// createToken creates the token's Secret as a user does, and returns whether the user was first.
func (s *stage) createToken() bool {
	s.Helper()
	cluster := &clusterv1.Cluster{ObjectMeta: s.meta()}
	err := s.env.Client.Create(background, testenv.Secret(cluster, token.SecretName(s.name), map[string]string{"value": usersToken}))
	if apierrors.IsAlreadyExists(err) {
		return false
	}
	require.NoError(s, err)
	return true
}

const usersToken = "a-users-token-0123456789"

// requireOneToken waits for the cluster, and checks that its token was made once, by the user or by an operator.
func (s *stage) requireOneToken(workers int, byUser bool) {
	s.Helper()
	s.awaitSettled(1, workers)
	s.remember()
	s.requireCustody()
	made := strings.Count(spoken.read(), "made a join token in Secret "+token.SecretName(s.name))
	secret := &corev1.Secret{ObjectMeta: s.metaOf(token.SecretName(s.name))}
	s.env.Refresh(s, secret)
	if byUser {
		require.Zero(s, made, "tokens that an operator made")
		require.True(s, string(secret.Data["value"]) == usersToken)
		return
	}
	require.Equal(s, 1, made, "tokens that the operators made")
}

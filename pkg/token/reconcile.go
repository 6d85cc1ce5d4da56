package token

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
	"github.com/capk3s/capk3s/pkg/custody"
)

// Reasons of the events about the token.
const (
	// CreatedEvent says that a token was made for a new cluster.
	CreatedEvent = "TokenCreated"

	// RestoredEvent says that a lost token was put back.
	RestoredEvent = "TokenRestored"
)

// retry is when a server is asked again.
const retry = 30 * time.Second

// Input is what [Reconcile] needs.
type Input struct {
	// Client reads from the cache and writes.
	Client client.Client

	// APIReader reads from the API server. It is asked only when the cache has no Secret or a write conflicts.
	APIReader client.Reader

	// Recorder takes the events, which are about ControlPlane.
	Recorder events.EventRecorder

	// Cluster is the Cluster that the token belongs to.
	Cluster *clusterv1.Cluster

	// ControlPlane is the control plane of Cluster.
	ControlPlane *controlplanev1.KThreesControlPlane

	// Initialized says whether there is any evidence that the cluster was founded.
	Initialized bool

	// DataTokens returns one element for each Machine of the cluster that has bootstrap data, newest Machine first:
	// the result of FromBootstrapData, or an empty Token for data that can't be read. It is called once in each pass
	// that finds a Secret with a valid token or none at all, so it should read from the cache; before a token is
	// made, Reconcile itself makes sure that the API server has no Machine with bootstrap data.
	DataTokens func(ctx context.Context) ([]Token, error)

	// Judge asks a server whether it takes a server token. It is called only when the token differs from one in the
	// bootstrap data; see [Verdicts] for not asking again in each pass.
	Judge func(ctx context.Context, token string) (Verdict, error)

	// Recover reads the token from a live server; nil without error when it can't. It is called only when the token
	// is lost and the bootstrap data don't help.
	Recover func(ctx context.Context) (*Token, error)

	// Now is the clock.
	Now func() time.Time
}

// Reconcile returns the token of a cluster and sees to it that it isn't lost: it makes one for a new cluster, puts
// back a lost one, and keeps the Secret's owner and labels. It never changes the value of a Secret that exists.
//
// An [*Error] says why there is no token that machines could join with; with reason TokenContested there is one all
// the same. A pass that finds all well reads the Secret from the cache and writes nothing.
func Reconcile(ctx context.Context, in Input) (*Token, error) {
	r := reconciler{Input: in, keeper: &custody.Keeper{
		Client: in.Client, APIReader: in.APIReader, Recorder: in.Recorder,
		Cluster: in.Cluster, ControlPlane: in.ControlPlane, Now: in.Now,
	}}
	if err := r.keeper.Entitled(); err != nil {
		return nil, err
	}
	secret, err := r.keeper.Get(ctx, r.name())
	if err != nil {
		return nil, err
	}
	if secret == nil {
		if secret, err = r.provide(ctx); err != nil {
			return nil, err
		}
	}
	return r.use(ctx, secret)
}

type reconciler struct {
	Input
	keeper *custody.Keeper
}

func (r *reconciler) name() string { return SecretName(r.Cluster.Name) }

// use returns the token of a Secret that exists.
func (r *reconciler) use(ctx context.Context, secret *corev1.Secret) (*Token, error) {
	if err := r.keeper.Check(secret); err != nil {
		return nil, err
	}
	if _, err := fromSecret(secret); err != nil {
		return nil, err
	}
	kept, err := r.keeper.Keep(ctx, secret)
	contested := custody.IsContested(err)
	if err != nil && contested == nil {
		return nil, err
	}
	// After a conflict this isn't the Secret that was read before.
	token, err := fromSecret(kept)
	if err != nil {
		return nil, err
	}
	if err := r.checkDrift(ctx, token); err != nil {
		var drift *Error
		if errors.As(err, &drift) {
			err = errors.Join(err, r.withhold(ctx, kept, drift.Reason))
		}
		return nil, err
	}
	if err := r.withhold(ctx, kept, ""); err != nil {
		return nil, err
	}
	if contested != nil {
		return token, contested.WithReason(controlplanev1.TokenContestedReason)
	}
	return token, nil
}

// checkDrift lets the cluster judge a token that not every server was started with: it may be from before a rotation, put
// back by the restore of an older backup. Which server is the newest doesn't tell, since a restore dates them anew.
func (r *reconciler) checkDrift(ctx context.Context, token *Token) error {
	data, err := r.DataTokens(ctx)
	if err != nil {
		return fmt.Errorf("reading the token from the bootstrap data of the machines: %w", err)
	}
	differs := func(machine Token) bool { return machine.Server != "" && machine.Server != token.Server }
	if !slices.ContainsFunc(data, differs) {
		return nil
	}
	verdict, err := r.Judge(ctx, token.Server)
	if err != nil {
		return fmt.Errorf("asking the cluster about the token in Secret %s: %w", r.name(), err)
	}
	switch verdict {
	case Accepted:
		return nil
	case Refused:
		return later(controlplanev1.TokenDriftedReason,
			"the servers refuse the token in Secret %s, so no machine is given it. Put back the value that the servers use, which ends /var/lib/rancher/k3s/server/token on each of them after the last colon; if the token was just rotated, restart K3s on the servers",
			r.name())
	default:
		return later(controlplanev1.TokenUnverifiedReason,
			"the token in Secret %s isn't the one that all servers were started with, and no server answers that could say whether it is right; waiting for a server",
			r.name())
	}
}

// later is an [*Error] that the cluster's servers may end.
func later(reason, format string, args ...any) error {
	err := custody.Errorf(reason, format, args...)
	err.RetryAfter = retry
	return err
}

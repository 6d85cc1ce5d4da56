package token

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
	"github.com/capk3s/capk3s/pkg/k3s"
)

// provide creates the Secret that doesn't exist: with a new token for a cluster that was never founded, else with
// the one that the cluster uses.
func (r *reconciler) provide(ctx context.Context) (*corev1.Secret, error) {
	data, err := r.DataTokens(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the token from the bootstrap data of the machines: %w", err)
	}
	if !r.Initialized && len(data) == 0 {
		if err := r.keeper.MayGenerate(ctx); err != nil {
			return nil, err
		}
		return r.create(ctx, random(), CreatedEvent, "made a join token in Secret %s")
	}
	return r.restore(ctx, data)
}

// restore puts back a lost token: one of the bootstrap data that the cluster accepts, else a live server's.
func (r *reconciler) restore(ctx context.Context, data []Token) (*corev1.Secret, error) {
	found := candidates(data)
	unreachable := false
	for _, candidate := range found {
		verdict, err := r.Judge(ctx, candidate.Server)
		if err != nil {
			return nil, fmt.Errorf("asking the cluster about the token of its machines' bootstrap data: %w", err)
		}
		if verdict == Accepted {
			return r.create(ctx, candidate, RestoredEvent, "put the lost join token back into Secret %s, from a machine's bootstrap data")
		}
		unreachable = unreachable || verdict == Unreachable
	}
	recovered, err := r.Recover(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the lost join token from a server: %w", err)
	}
	if recovered != nil && k3s.ValidateToken(recovered.Server) == nil {
		return r.create(ctx, *recovered, RestoredEvent, "put the lost join token back into Secret %s, from a server")
	}
	if unreachable {
		return nil, later(controlplanev1.TokenUnverifiedReason,
			"Secret %s is gone. The bootstrap data of the machines hold a token, but no server answers that could say whether it is right; it is put back once one does. If the token is known, create the Secret with it: type cluster.x-k8s.io/secret, key %s",
			r.name(), serverKey)
	}
	return nil, later(controlplanev1.TokenLostReason,
		"Secret %s is gone, and neither the machines' bootstrap data nor a server gave the token back. No new one is made, because the servers couldn't use it. Create the Secret with the old value: type cluster.x-k8s.io/secret, key %s; it ends /var/lib/rancher/k3s/server/token on each server after the last colon. Workers that have a token of their own need key %s, which ends server/agent-token likewise",
		r.name(), serverKey, agentKey)
}

// candidates returns the distinct server tokens in their order, each with the first agent token that goes with it.
func candidates(data []Token) []Token {
	var found []Token
	index := map[string]int{}
	for _, token := range data {
		if k3s.ValidateToken(token.Server) != nil {
			continue
		}
		at, ok := index[token.Server]
		if !ok {
			index[token.Server] = len(found)
			found = append(found, token)
			continue
		}
		if found[at].Agent == "" {
			found[at].Agent = token.Agent
		}
	}
	return found
}

func (r *reconciler) create(ctx context.Context, token Token, event, note string) (*corev1.Secret, error) {
	secret, created, err := r.keeper.Create(ctx, r.name(), token.data())
	if err != nil {
		return nil, err
	}
	if created {
		r.Recorder.Eventf(r.ControlPlane, secret, corev1.EventTypeNormal, event, "Provide", note, secret.Name)
	}
	return secret, nil
}

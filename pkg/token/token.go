// Package token keeps the join token of a K3s cluster: the Secret <cluster>-token in the Cluster's namespace.
//
// K3s encrypts what a cluster can't lose with its server token, so a token is state: it is made once, put back when
// it is lost, and never replaced. [Reconcile] does that for the control plane; everybody else uses [Lookup].
package token

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
	"github.com/capk3s/capk3s/pkg/custody"
	"github.com/capk3s/capk3s/pkg/k3s"
)

const (
	// serverKey of the Secret holds the server token.
	serverKey = "value"

	// agentKey of the Secret holds the agent token.
	agentKey = "agent-token"

	// tokenBytes of randomness make a token of twice as many characters.
	tokenBytes = 16
)

// Error says why there is no token, as a reason and a message for the condition TokenAvailable. Find it with
// errors.As; every other error is a failure that trying again may mend.
type Error = custody.Error

// SecretName returns the name of the Secret with a cluster's token.
func SecretName(cluster string) string { return cluster + "-token" }

// Token is what machines join a cluster with, in K3s' short form. However it is formatted or encoded, its values
// don't show.
type Token struct {
	// Server is the server token. Who has it can read the cluster's CA keys.
	Server string

	// Agent is the token for workers. It is empty for clusters whose Secret has none; their workers use Server.
	Agent string
}

const redacted = "[redacted token]"

// String returns a placeholder.
func (Token) String() string { return redacted }

// GoString returns a placeholder.
func (Token) GoString() string { return redacted }

// Format writes a placeholder for every verb.
func (Token) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// MarshalJSON returns a placeholder.
func (Token) MarshalJSON() ([]byte, error) { return []byte(`"` + redacted + `"`), nil }

// MarshalLog returns a placeholder for loggers of the logr interface.
func (Token) MarshalLog() any { return redacted }

// LogValue returns a placeholder for loggers of log/slog.
func (Token) LogValue() slog.Value { return slog.StringValue(redacted) }

// Lookup reads the token of a cluster; it writes nothing and makes nothing. While there is no Secret, the error is
// NotFound in the sense of apierrors.IsNotFound. A Secret without a usable token gives an [*Error] with reason
// TokenInvalid, and one with a token that the servers refuse, or may refuse, an [*Error] with the reason that
// [Reconcile] gave.
func Lookup(ctx context.Context, reader client.Reader, cluster client.ObjectKey) (*Token, error) {
	secret, err := read(ctx, reader, cluster)
	if err != nil {
		return nil, err
	}
	if err := checkWithheld(secret); err != nil {
		return nil, err
	}
	return fromSecret(secret)
}

// Stored reads the token of a cluster as [Lookup] does, and doesn't mind that the control plane holds it back. It is
// for having the servers judge it, not for machines.
func Stored(ctx context.Context, reader client.Reader, cluster client.ObjectKey) (*Token, error) {
	secret, err := read(ctx, reader, cluster)
	if err != nil {
		return nil, err
	}
	return fromSecret(secret)
}

func read(ctx context.Context, reader client.Reader, cluster client.ObjectKey) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: cluster.Namespace, Name: SecretName(cluster.Name)}
	if err := reader.Get(ctx, key, secret); err != nil {
		return nil, fmt.Errorf("reading Secret %s: %w", key.Name, err)
	}
	return secret, nil
}

func fromSecret(secret *corev1.Secret) (*Token, error) {
	token := &Token{Server: string(secret.Data[serverKey]), Agent: string(secret.Data[agentKey])}
	if err := k3s.ValidateToken(token.Server); err != nil {
		return nil, invalid(secret.Name, serverKey, err)
	}
	if _, ok := secret.Data[agentKey]; !ok {
		return token, nil
	}
	if err := k3s.ValidateToken(token.Agent); err != nil {
		return nil, invalid(secret.Name, agentKey, err)
	}
	return token, nil
}

func invalid(secret, key string, err error) error {
	return custody.Errorf(controlplanev1.TokenInvalidReason,
		"Secret %s, key %s: %v. Write the token into it that the cluster uses: /var/lib/rancher/k3s/server/token on a server ends with it, after the last colon",
		secret, key, err)
}

func (t Token) data() map[string][]byte {
	data := map[string][]byte{serverKey: []byte(t.Server)}
	if t.Agent != "" {
		data[agentKey] = []byte(t.Agent)
	}
	return data
}

func random() Token { return Token{Server: randomHex(), Agent: randomHex()} }

func randomHex() string {
	buffer := make([]byte, tokenBytes)
	_, _ = rand.Read(buffer) // Never fails.
	return hex.EncodeToString(buffer)
}

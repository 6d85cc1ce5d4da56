package token

import (
	"context"

	"github.com/capk3s/capk3s/pkg/k3s"
)

// Verdict is what the cluster says about a token.
type Verdict int

const (
	// Unreachable means that no server could be asked.
	Unreachable Verdict = iota

	// Accepted means that a server takes the token.
	Accepted

	// Refused means that a server answered and didn't take the token.
	Refused
)

// Ask has the servers judge a server token. With the verdict Unreachable, and only then, the error says why no server
// could be asked.
func Ask(ctx context.Context, servers *k3s.Supervisor, token string) (Verdict, error) {
	accepted, err := servers.AcceptsToken(ctx, token)
	switch {
	case err != nil:
		return Unreachable, err
	case accepted:
		return Accepted, nil
	default:
		return Refused, nil
	}
}

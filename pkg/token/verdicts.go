package token

import (
	"context"
	"crypto/sha256"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// verdictLifetime is how long an accepted token isn't asked about again.
const verdictLifetime = 10 * time.Minute

// Verdicts remembers for ten minutes which tokens were accepted, so that a rotated token costs no request in each
// pass until the machines were replaced. It keeps digests, not tokens. The zero value is ready; it is safe for
// concurrent use.
type Verdicts struct {
	mu       sync.Mutex
	accepted map[types.UID]verdict
}

type verdict struct {
	token [sha256.Size]byte
	until time.Time
}

// Judge returns a function for Input.Judge that asks judge about the tokens of a cluster, given by its UID, unless the
// answer is remembered.
func (v *Verdicts) Judge(cluster types.UID, now func() time.Time, judge func(context.Context, string) (Verdict, error)) func(context.Context, string) (Verdict, error) {
	return func(ctx context.Context, token string) (Verdict, error) {
		sum := sha256.Sum256([]byte(token))
		if v.remembered(cluster, sum, now()) {
			return Accepted, nil
		}
		answer, err := judge(ctx, token)
		if err == nil && answer == Accepted {
			v.remember(cluster, sum, now())
		}
		return answer, err
	}
}

func (v *Verdicts) remembered(cluster types.UID, sum [sha256.Size]byte, now time.Time) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	known, ok := v.accepted[cluster]
	return ok && known.token == sum && now.Before(known.until)
}

func (v *Verdicts) remember(cluster types.UID, sum [sha256.Size]byte, now time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.accepted == nil {
		v.accepted = map[types.UID]verdict{}
	}
	for uid, known := range v.accepted {
		if !now.Before(known.until) {
			delete(v.accepted, uid)
		}
	}
	v.accepted[cluster] = verdict{token: sum, until: now.Add(verdictLifetime)}
}

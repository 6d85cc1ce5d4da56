package custody

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// takes backs up takenAnnotation, for a foreign controller that drops the annotations it doesn't know when it takes
// a Secret back.
var takes = memory{times: map[types.UID]time.Time{}}

// memory remembers when Secrets were taken, for as long as that matters.
type memory struct {
	mu    sync.Mutex
	times map[types.UID]time.Time
}

func (m *memory) record(secret types.UID, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for uid, taken := range m.times {
		if remaining(taken, now) == 0 {
			delete(m.times, uid)
		}
	}
	m.times[secret] = now
}

func (m *memory) untilNextTake(secret types.UID, now time.Time) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	taken, ok := m.times[secret]
	if !ok {
		return 0
	}
	return remaining(taken, now)
}

package supervisor

import (
	"errors"
	"net/http"
)

var errTooMany = errors.New("too many requests, please try again later")

// inFlight limits how many requests are served at once.
type inFlight struct {
	reads, writes chan struct{}
}

func newInFlight(reads, writes int) *inFlight {
	return &inFlight{reads: make(chan struct{}, reads), writes: make(chan struct{}, writes)}
}

func (l *inFlight) wrap(next handlerFor) handlerFor {
	return func(w http.ResponseWriter, r *http.Request, who *identity) {
		slots := l.writes
		if r.Method == http.MethodGet || r.Method == http.MethodHead {
			slots = l.reads
		}
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
			next(w, r, who)
		default:
			w.Header().Set("Retry-After", "1")
			sendError(w, r, http.StatusTooManyRequests, errTooMany)
		}
	}
}

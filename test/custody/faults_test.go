package custody

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// fault is what happens to a write.
type fault string

const (
	// refused: the API server says no; nothing was written.
	refused fault = "refused"

	// timedOut: it was written, but the answer is a time-out.
	timedOut fault = "time-out after the write"

	// conflicted: it was written, but the answer is a conflict.
	conflicted fault = "conflict after the write"

	// diesBefore: the process ends, and nothing was written.
	diesBefore fault = "crash before the write"

	// diesAfter: it was written, and the process ends before it learns so.
	diesAfter fault = "crash after the write"
)

// faults are those that befall the writes of a life by turns.
var faults = []fault{diesAfter, timedOut, diesBefore, conflicted, refused}

var errDead = errors.New("this process has crashed")

// schedule says which writes of an operator's whole life fail: the first one, and then one in so many, of which shift
// tells with which fault to begin. It outlives the processes of the operator.
type schedule struct {
	shift int
	first int
	every int

	mu     sync.Mutex
	writes int
	calls  []string
	hits   []string
}

// next counts a write and says how it fails; empty when it doesn't.
func (s *schedule) next(r *http.Request) fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes++
	s.calls = append(s.calls, r.Method+" "+path.Base(r.URL.Path))
	if s.every == 0 || s.writes < s.first || (s.writes-s.first)%s.every != 0 {
		return ""
	}
	next := faults[(s.shift+s.first+len(s.hits))%len(faults)]
	s.hits = append(s.hits, fmt.Sprintf("%s %d, %s %s", next, s.writes, r.Method, r.URL.Path))
	return next
}

// count returns how often an object of that name was written.
func (s *schedule) count(method, name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, call := range s.calls {
		if call == method+" "+name {
			n++
		}
	}
	return n
}

// process is what the connections of one process of the operator to the API server have in common.
type process struct {
	schedule *schedule

	mu   sync.Mutex
	dead bool
}

// connection is one of the process's, of which each client has its own.
type connection struct {
	*process
	next http.RoundTripper
}

// RoundTrip makes a request, unless the schedule is against it.
func (c *connection) RoundTrip(r *http.Request) (*http.Response, error) {
	if c.crashed() {
		return nil, errDead
	}
	fault := fault("")
	if r.Method != http.MethodGet {
		fault = c.schedule.next(r)
	}
	switch fault {
	case "":
		return c.next.RoundTrip(r)
	case refused:
		return answer(r, http.StatusInternalServerError, metav1.StatusReasonInternalError), nil
	case diesBefore:
		c.die()
		return nil, errDead
	}
	response, err := c.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	switch fault {
	case timedOut:
		return answer(r, http.StatusGatewayTimeout, metav1.StatusReasonTimeout), nil
	case conflicted:
		return answer(r, http.StatusConflict, metav1.StatusReasonConflict), nil
	}
	c.die()
	return nil, errDead
}

func (p *process) die() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dead = true
}

func (p *process) crashed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead
}

func answer(r *http.Request, code int, reason metav1.StatusReason) *http.Response {
	body, _ := json.Marshal(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: int32(code), Reason: reason, Message: "injected", //nolint:gosec // an HTTP status
	})
	return &http.Response{
		StatusCode: code, Status: http.StatusText(code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{"Content-Type": []string{"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
	}
}

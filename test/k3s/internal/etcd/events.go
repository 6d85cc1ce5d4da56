package etcd

import (
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
)

// EventLogFile is where a server writes down what happens to the members.
const EventLogFile = "/var/log/k3s/etcd-members.jsonl"

// The kinds of event.
const (
	// EventStart and EventStop are this server's etcd starting and stopping.
	EventStart = "start"
	EventStop  = "stop"
	// EventAddLearner, EventPromote, EventEvict and EventRemove are changes that
	// this server asked for and etcd accepted.
	EventAddLearner = "add-learner"
	EventPromote    = "promote"
	EventEvict      = "evict-learner"
	EventRemove     = "remove"
	// EventMembers is a change of the member list as this server saw it.
	EventMembers = "members"
	// EventNoLeader and EventLeader are this server losing and finding a leader.
	EventNoLeader = "no-leader"
	EventLeader   = "leader"
	// EventQuorumLost and EventQuorum tell whether this server is connected to
	// enough voters to be part of a quorum.
	EventQuorumLost = "quorum-lost"
	EventQuorum     = "quorum"
)

// Event is one line of the event log.
type Event struct {
	// Time is RFC 3339 with nanoseconds.
	Time time.Time `json:"time"`
	// Member is the etcd member that writes the log.
	Member string `json:"member"`
	// Event is one of the kinds above.
	Event string `json:"event"`
	// Target is the member that the event is about, if it isn't the writer.
	Target string `json:"target,omitempty"`
	// TargetID is etcd's number of the target. Others learn a new member's name
	// only some time after its number.
	TargetID uint64 `json:"targetID,omitempty"`
	// Voters and Learners are the member names (or peer URLs, while they have no
	// name) that this server knew of.
	Voters   []string `json:"voters,omitempty"`
	Learners []string `json:"learners,omitempty"`
}

// eventLog appends to the event log; a log that can't be written is no reason
// to stop etcd.
type eventLog struct {
	mu   sync.Mutex
	path string
}

func (l *eventLog) append(event Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	event.Time = time.Now().UTC()
	line, err := json.Marshal(event)
	if err != nil {
		logrus.Warnf("Failed to encode etcd event: %v", err)
		return
	}
	if err := l.write(append(line, '\n')); err != nil {
		logrus.Warnf("Failed to write etcd event: %v", err)
	}
}

func (l *eventLog) write(line []byte) error {
	if err := os.MkdirAll(filepath.Dir(l.path), 0o755); err != nil {
		return err
	}
	file, err := os.OpenFile(l.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	if _, err := file.Write(line); err != nil {
		_ = file.Close()
		return err
	}
	return file.Close()
}

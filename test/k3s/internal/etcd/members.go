package etcd

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/sirupsen/logrus"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

const (
	// progressKey is where the leader notes how far the learner has come.
	progressKey = "k3s/etcd/learnerProgress"
	// learnerMaxStall is how long a learner may stand still.
	learnerMaxStall = 5 * time.Minute
)

// MemberStatus is a member as the leader sees it.
type MemberStatus struct {
	// Name is the member's name; empty until it has started.
	Name string
	// Host is the host of its peer URL.
	Host string
	// Learner is true until the member votes.
	Learner bool
	// Err is why the member's own status couldn't be read.
	Err error
}

type progress struct {
	ID               uint64    `json:"id,omitempty"`
	Name             string    `json:"name,omitempty"`
	RaftAppliedIndex uint64    `json:"raftAppliedIndex,omitempty"`
	LastProgress     time.Time `json:"lastProgress,omitempty"`
}

// List returns the members after a linearizable read, within two seconds.
func (s *Server) List(ctx context.Context) (*Members, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	list, err := s.client.MemberList(ctx)
	if err != nil {
		return nil, err
	}
	return &Members{Members: list.Members}, nil
}

// manageMembers is the leader's duty: to promote or evict learners, and to
// report on all members.
func (s *Server) manageMembers(ctx context.Context) {
	ticker := time.NewTicker(s.opts.LearnerTick)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if !s.isLeader() {
			continue
		}
		if err := s.manageOnce(ctx); err != nil {
			logrus.Errorf("Failed to manage etcd members: %v", err)
		}
	}
}

func (s *Server) isLeader() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running != nil && s.running.Server.Leader() == s.running.Server.MemberID()
}

func (s *Server) manageOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, testTimeout)
	defer cancel()
	list, err := s.client.MemberList(ctx)
	if err != nil {
		return err
	}
	var statuses []MemberStatus
	for _, member := range list.Members {
		status := MemberStatus{Name: member.Name, Host: firstHost(member.PeerURLs), Learner: member.IsLearner}
		applied, err := s.appliedIndex(ctx, member)
		status.Err = err
		if member.IsLearner {
			if status.Learner, err = s.advanceLearner(ctx, member, applied); err != nil {
				return err
			}
		}
		statuses = append(statuses, status)
	}
	if s.opts.Report != nil {
		s.opts.Report(ctx, statuses)
	}
	return nil
}

// appliedIndex asks a member itself how far it is.
func (s *Server) appliedIndex(ctx context.Context, member *etcdserverpb.Member) (uint64, error) {
	if len(member.ClientURLs) == 0 {
		return 0, errors.New("etcd member has not started")
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	status, err := s.client.Status(ctx, member.ClientURLs[0])
	if err != nil {
		return 0, err
	}
	return status.RaftAppliedIndex, nil
}

// advanceLearner promotes a learner that has caught up, and evicts one that has
// stood still too long. It tells whether the member is still a learner.
func (s *Server) advanceLearner(ctx context.Context, member *etcdserverpb.Member, applied uint64) (bool, error) {
	_, err := s.client.MemberPromote(ctx, member.ID)
	if err == nil {
		logrus.Infof("Promoted learner %s", member.Name)
		s.logChange(EventPromote, member)
		return false, nil
	}
	if !errors.Is(err, rpctypes.ErrMemberLearnerNotReady) {
		logrus.Debugf("Unable to promote learner %s: %v", member.Name, err)
	}

	now := time.Now()
	last, err := s.progress(ctx)
	if err != nil {
		return true, err
	}
	switch {
	case last.ID != member.ID:
		last = progress{ID: member.ID, LastProgress: now}
	case last.RaftAppliedIndex < applied:
		logrus.Debugf("Learner %s has progressed from RaftAppliedIndex %d to %d", member.Name, last.RaftAppliedIndex, applied)
		last.LastProgress = now
	case now.Sub(last.LastProgress) > learnerMaxStall:
		logrus.Warnf("Removing learner %s from etcd cluster: no progress for %s", label(member.Name, member.PeerURLs), learnerMaxStall)
		if _, err := s.client.MemberRemove(ctx, member.ID); err != nil {
			return true, err
		}
		s.logChange(EventEvict, member)
		return true, nil
	}
	last.Name, last.RaftAppliedIndex = member.Name, applied
	return true, s.saveProgress(ctx, last)
}

func (s *Server) progress(ctx context.Context) (progress, error) {
	var last progress
	resp, err := s.client.Get(ctx, progressKey)
	if err != nil || len(resp.Kvs) == 0 {
		return last, err
	}
	return last, json.Unmarshal(resp.Kvs[0].Value, &last)
}

func (s *Server) saveProgress(ctx context.Context, last progress) error {
	raw, err := json.Marshal(last)
	if err != nil {
		return err
	}
	_, err = s.client.Put(ctx, progressKey, string(raw))
	return err
}

func firstHost(urls []string) string {
	if len(urls) == 0 {
		return ""
	}
	return hostOf(urls[0])
}

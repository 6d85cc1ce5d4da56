package etcd

import (
	"context"
	"fmt"
	"time"

	"github.com/sirupsen/logrus"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

const removeTimeout = time.Minute

// RemovePeer removes the member with that name at that address; one that isn't
// there is a success. A leader hands over before it goes.
func (s *Server) RemovePeer(ctx context.Context, name, address string) error {
	ctx, cancel := context.WithTimeout(ctx, removeTimeout)
	defer cancel()
	list, err := s.client.MemberList(ctx)
	if err != nil {
		return err
	}
	for _, member := range list.Members {
		if member.Name != name || firstHost(member.PeerURLs) != address {
			continue
		}
		if err := s.moveLeaderAway(ctx, member, list.Members); err != nil {
			return err
		}
		logrus.Infof("Removing name=%s id=%d address=%s from etcd", member.Name, member.ID, address)
		if _, err := s.client.MemberRemove(ctx, member.ID); err != nil {
			return err
		}
		s.logChange(EventRemove, member)
		return nil
	}
	return nil
}

// moveLeaderAway gives leadership to another voter if the member has it.
func (s *Server) moveLeaderAway(ctx context.Context, leaving *etcdserverpb.Member, members []*etcdserverpb.Member) error {
	status, err := s.client.Status(ctx, Endpoint)
	if err != nil {
		return err
	}
	if status.Leader != leaving.ID || len(leaving.ClientURLs) == 0 {
		return nil
	}
	for _, member := range members {
		if member.ID == leaving.ID || member.IsLearner || member.Name == "" {
			continue
		}
		logrus.Infof("Moving etcd leader from %s to %s", leaving.Name, member.Name)
		leader, err := s.newClient(leaving.ClientURLs[0])
		if err != nil {
			return err
		}
		_, err = leader.MoveLeader(ctx, member.ID)
		_ = leader.Close()
		if err != nil {
			return fmt.Errorf("move etcd leader to %s: %w", member.Name, err)
		}
		return nil
	}
	return nil
}

package etcd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/capk3s/capk3s/test/k3s/internal/client"
)

const joinTimeout = 20 * time.Second

var (
	errDuplicateName = errors.New("duplicate node name found, please use a unique name for this node")
	errMemberList    = errors.New("failed to get etcd MemberList")
)

// Members is the answer of /db/info.
type Members struct {
	Members []*etcdserverpb.Member `json:"members"`
}

// joinUntilDone tries to join once a second. What can pass is waited for; all
// else ends the process.
func (s *Server) joinUntilDone(ctx context.Context, join *client.Client) {
	for {
		err := s.join(ctx, join)
		if err == nil || ctx.Err() != nil {
			return
		}
		if !canPass(err) {
			s.opts.Shutdown(fmt.Errorf("etcd cluster join failed: %w", err))
			return
		}
		logrus.Infof("Waiting for other members to finish joining etcd cluster: %v", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Second):
		}
	}
}

func canPass(err error) bool {
	return errors.Is(err, rpctypes.ErrTooManyLearners) ||
		errors.Is(err, rpctypes.ErrUnhealthy) ||
		errors.Is(err, errMemberList) ||
		errors.Is(err, context.DeadlineExceeded)
}

// join adds this machine as a learner, unless it is a member already, and
// starts etcd.
func (s *Server) join(ctx context.Context, join *client.Client) error {
	rpc, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	endpoints, err := s.memberEndpoints(join)
	if err != nil {
		return err
	}
	etcd, err := s.newClient(endpoints...)
	if err != nil {
		return err
	}
	defer func() { _ = etcd.Close() }()
	list, err := etcd.MemberList(rpc)
	if err != nil {
		return fmt.Errorf("%w: %w", errMemberList, err)
	}
	cluster, isMember, err := s.initialCluster(list.Members)
	if err != nil {
		return err
	}
	if !isMember {
		logrus.Infof("Adding member %s=%s to etcd cluster %v", s.name, s.peerURL(), cluster)
		if err := s.addLearner(rpc, etcd); err != nil {
			return err
		}
		cluster = append(cluster, s.name+"="+s.peerURL())
	}
	logrus.Infof("Starting etcd to join cluster with members %v", cluster)
	return s.run(ctx, strings.Join(cluster, ","), "existing")
}

func (s *Server) addLearner(ctx context.Context, etcd *clientv3.Client) error {
	resp, err := etcd.MemberAddAsLearner(ctx, []string{s.peerURL()})
	if err != nil {
		return err
	}
	event := Event{Member: s.name, Event: EventAddLearner, Target: s.name, TargetID: resp.Member.ID}
	for _, member := range resp.Members {
		if member.IsLearner {
			event.Learners = append(event.Learners, label(member.Name, member.PeerURLs))
		} else {
			event.Voters = append(event.Voters, label(member.Name, member.PeerURLs))
		}
	}
	s.events.append(event)
	return nil
}

// memberEndpoints asks the server that is joined for the voters, itself first.
func (s *Server) memberEndpoints(join *client.Client) ([]string, error) {
	raw, err := join.Get("/db/info")
	if client.IsCode(err, http.StatusUnauthorized) || client.IsCode(err, http.StatusForbidden) {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errMemberList, err)
	}
	var info Members
	if err := json.Unmarshal(raw, &info); err != nil {
		return nil, fmt.Errorf("%w: %w", errMemberList, err)
	}
	joinURL, err := url.Parse(join.URL)
	if err != nil {
		return nil, err
	}
	var endpoints []string
	for _, member := range info.Members {
		if member.IsLearner {
			continue
		}
		for _, address := range member.ClientURLs {
			host := hostOf(address)
			switch {
			case host == s.address:
			case host == joinURL.Hostname():
				endpoints = slices.Insert(endpoints, 0, address)
			default:
				endpoints = append(endpoints, address)
			}
		}
	}
	if len(endpoints) == 0 {
		return nil, errMemberList
	}
	return endpoints, nil
}

// initialCluster lists the members as etcd wants them, and tells whether this
// machine is among them.
func (s *Server) initialCluster(members []*etcdserverpb.Member) (cluster []string, isMember bool, err error) {
	for _, member := range members {
		mine := slices.ContainsFunc(member.PeerURLs, func(u string) bool { return hostOf(u) == s.address })
		name := member.Name
		if name == "" && mine {
			name = s.name
		}
		if name == s.name && mine {
			isMember = true
		}
		if name != s.name && nodeNameOf(name) == s.opts.Control.ServerNodeName {
			if err := os.Remove(s.nameFile()); err != nil {
				logrus.Errorf("Failed to remove etcd name file %s: %v", s.nameFile(), err)
			}
			return nil, false, errDuplicateName
		}
		if len(member.PeerURLs) > 0 {
			cluster = append(cluster, name+"="+member.PeerURLs[0])
		}
	}
	return cluster, isMember, nil
}

// nodeNameOf strips the random part of a member's name.
func nodeNameOf(member string) string {
	if i := strings.LastIndex(member, "-"); i > 1 {
		return member[:i]
	}
	return member
}

func hostOf(address string) string {
	parsed, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return parsed.Hostname()
}

func label(name string, peerURLs []string) string {
	if name != "" {
		return name
	}
	return strings.Join(peerURLs, ",")
}

package etcd

import (
	"context"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
)

const watchInterval = 500 * time.Millisecond

// observation is what a server can see of the cluster without asking others.
type observation struct {
	voters, learners []string
	hasLeader        bool
	hasQuorum        bool
}

// watch writes down every change of what this server sees.
func (s *Server) watch(ctx context.Context, running *embed.Etcd) {
	ticker := time.NewTicker(watchInterval)
	defer ticker.Stop()
	var last observation
	missedBefore := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-running.Server.StopNotify():
			return
		case <-ticker.C:
		}
		now := observe(running)
		// One look isn't enough: connections break when a member leaves, before
		// the news of its leaving is here.
		missing := !now.hasQuorum
		now.hasQuorum = now.hasQuorum || (last.hasQuorum && !missedBefore)
		missedBefore = missing
		for _, event := range changes(last, now) {
			s.events.append(Event{Member: s.name, Event: event, Voters: now.voters, Learners: now.learners})
		}
		last = now
	}
}

// changes names the events between two observations.
func changes(last, now observation) []string {
	var events []string
	if !slices.Equal(last.voters, now.voters) || !slices.Equal(last.learners, now.learners) {
		events = append(events, EventMembers)
	}
	if last.hasLeader != now.hasLeader {
		events = append(events, pick(now.hasLeader, EventLeader, EventNoLeader))
	}
	if last.hasQuorum != now.hasQuorum {
		events = append(events, pick(now.hasQuorum, EventQuorum, EventQuorumLost))
	}
	return events
}

func pick(yes bool, a, b string) string {
	if yes {
		return a
	}
	return b
}

func observe(running *embed.Etcd) observation {
	members := running.Server.Cluster().Members()
	voters, learners := split(members)
	active := activePeers()
	connected := 0
	if running.Server.Cluster().Member(running.Server.MemberID()) == nil {
		// A member that was removed has no quorum to lose.
		connected = len(members)
	}
	for _, member := range members {
		if !member.IsLearner && (member.ID == running.Server.MemberID() || active[member.ID.String()]) {
			connected++
		}
	}
	return observation{
		voters:    voters,
		learners:  learners,
		hasLeader: running.Server.Leader() != 0,
		hasQuorum: len(voters) > 0 && connected > len(voters)/2,
	}
}

// activePeers are the members that this one is connected to, from etcd's own
// gauge: etcd has no other way to ask.
func activePeers() map[string]bool {
	families, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		return nil
	}
	active := map[string]bool{}
	for _, family := range families {
		if family.GetName() != "etcd_network_active_peers" {
			continue
		}
		for _, metric := range family.GetMetric() {
			if metric.GetGauge().GetValue() > 0 {
				active[labelValue(metric, "Remote")] = true
			}
		}
	}
	return active
}

func labelValue(metric *dto.Metric, name string) string {
	for _, pair := range metric.GetLabel() {
		if pair.GetName() == name {
			return pair.GetValue()
		}
	}
	return ""
}

// split returns the names of voters and learners, sorted.
func split(members []*membership.Member) (voters, learners []string) {
	for _, member := range members {
		name := label(member.Name, member.PeerURLs)
		if member.IsLearner {
			learners = append(learners, name)
		} else {
			voters = append(voters, name)
		}
	}
	slices.Sort(voters)
	slices.Sort(learners)
	return voters, learners
}

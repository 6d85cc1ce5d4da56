package etcd

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/capk3s/capk3s/test/k3s/internal/config"
)

func TestChanges(t *testing.T) {
	healthy := observation{voters: []string{"a"}, hasLeader: true, hasQuorum: true}
	for name, row := range map[string]struct {
		last, now observation
		want      []string
	}{
		"first":   {observation{}, healthy, []string{EventMembers, EventLeader, EventQuorum}},
		"nothing": {healthy, healthy, nil},
		"learner": {healthy, observation{voters: []string{"a"}, learners: []string{"b"}, hasLeader: true, hasQuorum: true}, []string{EventMembers}},
		"alone":   {healthy, observation{voters: []string{"a"}}, []string{EventNoLeader, EventQuorumLost}},
	} {
		assert.Equal(t, row.want, changes(row.last, row.now), name)
	}
}

func TestInitialCluster(t *testing.T) {
	member := func(name, ip string) *etcdserverpb.Member {
		return &etcdserverpb.Member{Name: name, PeerURLs: []string{"https://" + ip + ":2380"}}
	}
	s := &Server{
		opts: Options{Control: &config.Control{ServerNodeName: "s3"}}, dir: t.TempDir(),
		name: "s3-0000", address: "10.0.0.3",
	}
	for name, row := range map[string]struct {
		members  []*etcdserverpb.Member
		isMember bool
		err      error
	}{
		"new":                 {[]*etcdserverpb.Member{member("s1-1111", "10.0.0.1")}, false, nil},
		"added, not started":  {[]*etcdserverpb.Member{member("s1-1111", "10.0.0.1"), member("", "10.0.0.3")}, true, nil},
		"same name elsewhere": {[]*etcdserverpb.Member{member("s3-1111", "10.0.0.1")}, false, errDuplicateName},
		"longer name":         {[]*etcdserverpb.Member{member("s3-x-1111", "10.0.0.1")}, false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			_, isMember, err := s.initialCluster(row.members)
			assert.ErrorIs(t, err, row.err)
			assert.Equal(t, row.isMember, isMember)
		})
	}
}

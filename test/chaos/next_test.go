package chaos

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/capk3s/capk3s/pkg/k3s"
)

const first = "v1.34.1+k3s1"

// walk lets a cluster of three servers live through a number of operations.
func walk(seed uint64, operations int) (states []Cluster, did []Operation) {
	random := rand.New(rand.NewPCG(seed, 0))
	cluster := Cluster{Servers: 3, Workers: 1, Version: first}
	for range operations {
		operation := Next(cluster, random)
		states, did = append(states, cluster), append(did, operation)
		cluster = operation.Want
	}
	return states, did
}

func TestNext_FollowsFromTheSeed(t *testing.T) {
	_, one := walk(7, 50)
	_, same := walk(7, 50)
	_, other := walk(8, 50)
	require.Equal(t, one, same)
	require.NotEqual(t, one, other)
}

func TestNext_KeepsTheQuorumAndTheRules(t *testing.T) {
	for seed := range uint64(50) {
		states, did := walk(seed, 100)
		for i, operation := range did {
			before, want := states[i], operation.Want
			assert.Contains(t, []int{1, 3, 5}, want.Servers, operation)
			assert.LessOrEqual(t, want.Workers, 2, operation)
			switch operation.Kind {
			case KillServer, FreezeServer, CutServer:
				assert.GreaterOrEqual(t, before.Servers, 3, "%s loses the quorum", operation)
			}
			assert.Less(t, operation.Server, before.Servers, operation)
			if operation.Kind != Scale && operation.Kind != Upgrade {
				assert.Equal(t, before, want, operation)
			}
			if operation.Pause != 0 {
				assert.LessOrEqual(t, operation.Pause, 20*time.Second, operation)
			}
			requireUpgradable(t, before.Version, want.Version)
		}
	}
}

// requireUpgradable checks that a version is allowed after another one: never older, at most a minor ahead.
func requireUpgradable(t *testing.T, from, to string) {
	t.Helper()
	before, err := k3s.ParseVersion(from)
	require.NoError(t, err)
	after, err := k3s.ParseVersion(to)
	require.NoError(t, err)
	require.GreaterOrEqual(t, after.Compare(before), 0, "%s after %s", to, from)
	require.LessOrEqual(t, after.Kubernetes.Minor, before.Kubernetes.Minor+1, "%s after %s", to, from)
	require.LessOrEqual(t, after.Kubernetes.Minor, uint64(39))
	require.LessOrEqual(t, after.Build, uint64(9))
}

func TestNext_ChangesSomething(t *testing.T) {
	states, did := walk(3, 500)
	for i, operation := range did {
		switch operation.Kind {
		case Scale:
			assert.NotEqual(t, states[i], operation.Want, operation)
			assert.Equal(t, states[i].Version, operation.Want.Version)
		case Upgrade:
			assert.NotEqual(t, states[i].Version, operation.Want.Version)
			assert.Equal(t, states[i].Servers, operation.Want.Servers)
		case Crash:
			assert.NotEmpty(t, operation.Crash)
		}
	}
}

func TestNext_ComesToEveryKind(t *testing.T) {
	_, did := walk(1, 300)
	kinds, crashes := map[Kind]int{}, map[Program]int{}
	for _, operation := range did {
		kinds[operation.Kind]++
		if operation.Kind != Crash && operation.Crash != "" {
			crashes[operation.Crash]++
		}
	}
	for _, r := range rules {
		assert.NotZero(t, kinds[r.kind], r.kind)
	}
	assert.Len(t, crashes, 3, "programs killed in the midst of something else")
}

func TestOperation_SaysWhatItDoes(t *testing.T) {
	want := Cluster{Servers: 3, Workers: 1, Version: "v1.36.1+k3s2"}
	for text, operation := range map[string]Operation{
		"scale to 3 servers and 1 workers": {Kind: Scale, Want: want},
		"upgrade to v1.36.1+k3s2, kube-apiserver killed after 4s": {
			Kind: Upgrade, Want: want, Crash: APIServer, After: 4 * time.Second,
		},
		"cut server 2 for 5s":             {Kind: CutServer, Want: want, Server: 2, Pause: 5 * time.Second},
		"crash, operator killed after 0s": {Kind: Crash, Want: want, Crash: Operator},
		"delete token":                    {Kind: DeleteToken, Want: want},
	} {
		assert.Equal(t, text, operation.String())
	}
}

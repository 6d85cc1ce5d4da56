package chaos

import (
	"math/rand/v2"
	"slices"
	"time"
)

const (
	// maxServers and maxWorkers bound a cluster to what a small machine can carry.
	maxServers, maxWorkers = 5, 2

	// minPause and maxPause bound how long a server is away. The upper one is
	// less than what it takes to be held for dead.
	minPause, maxPause = 3 * time.Second, 20 * time.Second

	// maxAfter is the longest time until a crash: within it a server boots, joins or leaves.
	maxAfter = 20 * time.Second
)

// rule says when a kind of operation may be, how often it is chosen, and what
// has to be decided besides.
type rule struct {
	kind   Kind
	weight int
	// spares says that a server is out of order meanwhile, so that there have to be others.
	spares bool
	// decide fills in the operation; nil when there is nothing to decide.
	decide func(*Operation, *rand.Rand)
	// lasts says that it takes its time, so that a program can be killed in its midst.
	lasts bool
}

var rules = []rule{
	{kind: Scale, weight: 3, decide: decideScale, lasts: true},
	{kind: Upgrade, weight: 2, decide: decideVersion, lasts: true},
	{kind: KillServer, weight: 3, spares: true, decide: decideServer, lasts: true},
	{kind: DeleteServer, weight: 1, decide: decideServer, lasts: true},
	{kind: DeleteConfig, weight: 1, decide: decideServer, lasts: true},
	{kind: FreezeServer, weight: 2, spares: true, decide: decidePause},
	{kind: CutServer, weight: 2, spares: true, decide: decidePause},
	{kind: DeleteToken, weight: 1},
	{kind: StripReferences, weight: 1},
	{kind: CorruptReferences, weight: 1},
	{kind: Crash, weight: 2, decide: decideCrash},
}

// Next decides what befalls a settled cluster. etcd keeps its quorum in all of it.
func Next(cluster Cluster, random *rand.Rand) Operation {
	allowed := slices.DeleteFunc(slices.Clone(rules), func(r rule) bool { return r.spares && cluster.Servers < 3 })
	chosen := choose(allowed, random)
	operation := Operation{Kind: chosen.kind, Want: cluster}
	if chosen.decide != nil {
		chosen.decide(&operation, random)
	}
	if chosen.lasts && random.IntN(3) == 0 {
		decideCrash(&operation, random)
		operation.After = between(0, maxAfter, random)
	}
	return operation
}

func choose(from []rule, random *rand.Rand) rule {
	total := 0
	for _, r := range from {
		total += r.weight
	}
	at := random.IntN(total)
	for _, r := range from {
		if at -= r.weight; at < 0 {
			return r
		}
	}
	return from[len(from)-1] // not reached: at was less than the total
}

// decideScale changes the servers, the workers or both.
func decideScale(o *Operation, random *rand.Rand) {
	before := o.Want
	for o.Want == before {
		o.Want.Servers = 1 + 2*random.IntN((maxServers+1)/2)
		o.Want.Workers = random.IntN(maxWorkers + 1)
	}
}

func decideVersion(o *Operation, random *rand.Rand) {
	candidates := newer(o.Want.Version)
	o.Want.Version = candidates[random.IntN(len(candidates))]
}

func decideServer(o *Operation, random *rand.Rand) { o.Server = random.IntN(o.Want.Servers) }

func decidePause(o *Operation, random *rand.Rand) {
	decideServer(o, random)
	o.Pause = between(minPause, maxPause, random)
}

func decideCrash(o *Operation, random *rand.Rand) {
	o.Crash = []Program{Operator, APIServer, Core}[random.IntN(3)]
}

// between is a time in whole seconds, both ends included.
func between(low, high time.Duration, random *rand.Rand) time.Duration {
	return low + time.Duration(random.Int64N(int64((high-low)/time.Second)+1))*time.Second
}

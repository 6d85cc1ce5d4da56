package controllers

import (
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capk3s/capk3s/pkg/custody"
	"github.com/capk3s/capk3s/pkg/k3s"
)

// plan is what a reconcile will write besides custody and status. It is decided before the first write.
type plan struct {
	// found is the Machine whose KThreesConfig gets the order to found the cluster.
	found *clusterv1.Machine

	// create is a Machine to be made; delete is one to be deleted.
	create *creation
	delete *clusterv1.Machine

	// remediate is an unhealthy Machine to be deleted and replaced; refused is one that isn't, or not yet.
	remediate *remediation
	refused   *refusal

	// remediated says that the record of a remediation has served its purpose.
	remediated bool

	// release are deleting Machines that need not be held back any longer.
	release []*clusterv1.Machine

	// remove is an etcd member that K3s shall remove.
	remove *removal

	// standIn is an etcd member without a Node that needs one to be removed; dismiss is a Node that has served so.
	standIn *k3s.Member
	dismiss *corev1.Node

	// waiting says what holds back a change, for the conditions and the events.
	waiting []hold

	// requeueAfter is set when something is waited for that can't be watched.
	requeueAfter time.Duration
}

// creation is a Machine to be made.
type creation struct {
	// first says whether the Machine founds the cluster. The order is given later, after the evidence was written.
	first         bool
	failureDomain string
}

// removal is an etcd member to be removed, by way of its Node.
type removal struct {
	machine *clusterv1.Machine
	node    *corev1.Node
	member  string
}

// change is a kind of change that can be held back.
type change string

const (
	scaleUp      change = "scale up"
	scaleDown    change = "scale down"
	removeMember change = "remove etcd member"
)

// hold says which change is held back, and why.
type hold struct {
	change  change
	message string
}

const (
	// pollMembers is the wait for etcd's members, which offer no watch.
	pollMembers = 3 * time.Second

	// pollFirstStart is the wait for the first answer of the API, before which there is nothing to watch.
	pollFirstStart = 2 * time.Second

	// pollUnreachable is the fallback for what is missing or doesn't answer; of most a watch tells sooner.
	pollUnreachable = 20 * time.Second
)

// decide plans a reconcile of a control plane that is not being deleted.
func decide(s *scope) plan {
	p := plan{}
	planFounding(s, &p)
	planHooks(s, &p)
	planOrphans(s, &p)
	planRemediation(s, &p)
	if p.remediate == nil {
		planReplicas(s, &p)
	}
	if p.requeueAfter == 0 {
		p.requeueAfter = fallbackWait(s)
	}
	// Nothing happens to an object when its time has come.
	p.lookAgain(s.untilDue())
	return p
}

// lookAgain asks for another reconcile after a wait, or sooner when something else asks for that; 0 asks for none.
func (p *plan) lookAgain(after time.Duration) {
	if after > 0 && (p.requeueAfter == 0 || after < p.requeueAfter) {
		p.requeueAfter = after
	}
}

// fallbackWait is the wait for what can't be watched; none when everything is settled.
func fallbackWait(s *scope) time.Duration {
	switch {
	case s.tokenErr != nil || s.certificatesErr != nil:
		// A server that could judge or give back what was lost can't be watched.
		return custodyWait(s.tokenErr, s.certificatesErr)
	case s.template == nil:
		// Its kind isn't known beforehand, so that it isn't watched.
		return pollUnreachable
	case len(s.machines) == 0:
		return 0
	case !s.isInitialized():
		return pollFirstStart
	case s.workload.nodesErr != nil || s.workload.membersErr != nil && s.embeddedEtcd():
		return pollUnreachable
	case s.embeddedEtcd() && s.workload.joining() != "":
		return pollMembers
	}
	return 0
}

// custodyWait is when to look again after what custody reported: the soonest that any of it asks for.
func custodyWait(errs ...error) time.Duration {
	wait := time.Duration(0)
	for _, err := range errs {
		var known *custody.Error
		if !errors.As(err, &known) {
			continue
		}
		after := known.RetryAfter
		if after == 0 {
			after = pollUnreachable
		}
		if wait == 0 || after < wait {
			wait = after
		}
	}
	return wait
}

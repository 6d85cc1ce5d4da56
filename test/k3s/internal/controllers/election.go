package controllers

import (
	"context"
	"time"

	"github.com/sirupsen/logrus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// electionTimes are how long a lease lasts, how long a holder tries to renew it,
// and how often.
type electionTimes struct {
	lease, renew, retry time.Duration
}

var (
	// k3sTimes are those of K3s' own leases.
	k3sTimes = electionTimes{lease: 45 * time.Second, renew: 30 * time.Second, retry: 2 * time.Second}
	// kubernetesTimes are those of kube-controller-manager.
	kubernetesTimes = electionTimes{lease: 15 * time.Second, renew: 10 * time.Second, retry: 2 * time.Second}
)

// elect runs something in one server at a time, under a lease in kube-system. A
// server that loses a lease that it held ends, as K3s does. SQLite has one
// server, and no elections.
func (c *Controllers) elect(ctx context.Context, name string, times electionTimes, run func(context.Context)) {
	if !c.etcd.Shared() {
		go run(ctx)
		return
	}
	lock := &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceSystem},
		Client:     c.kube.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: c.host},
	}
	held := false
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, Name: name, ReleaseOnCancel: true,
		LeaseDuration: times.lease, RenewDeadline: times.renew, RetryPeriod: times.retry,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				held = true
				logrus.Infof("Became leader of %s", name)
				run(ctx)
			},
			OnStoppedLeading: func() {
				if ctx.Err() == nil && held {
					logrus.Fatalf("leaderelection lost for %s", name)
				}
			},
		},
	})
	if err != nil {
		logrus.Fatalf("leader election of %s: %v", name, err)
	}
	go elector.Run(ctx)
}

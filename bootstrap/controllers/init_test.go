package controllers

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
	"github.com/capk3s/capk3s/test/testenv"
)

func (w *world) lockIsHeld() bool {
	w.t.Helper()
	err := env.Client.Get(ctx, client.ObjectKey{Namespace: w.cluster.Namespace, Name: "c-lock"}, &corev1.ConfigMap{})
	if apierrors.IsNotFound(err) {
		return false
	}
	require.NoError(w.t, err)
	return true
}

func TestReconcile_OnlyOneServerFoundsTheCluster(t *testing.T) {
	w := newWorld(t).complete()
	first, second := w.machine("first", bootstrapv1.OrderInit), w.machine("second", bootstrapv1.OrderInit)
	w.mustReconcile(first)
	w.requireData(first)
	require.True(t, w.lockIsHeld())

	result := w.mustReconcile(second)
	w.requireWaiting(second, bootstrapv1.WaitingForInitLockReason, "ConfigMap c-lock")
	require.Equal(t, lockRetry, result.RequeueAfter)

	w.initialize()
	w.mustReconcile(second)
	require.NotContains(t, w.requireData(second).config, "cluster-init", "the order to found came too late")
	require.True(t, w.lockIsHeld())
	w.mustReconcile(first)
	require.False(t, w.lockIsHeld(), "the founder releases it")
}

// The lock is gone, the cluster's status too, but another Machine has bootstrap data.
func TestReconcile_NeverASecondInitAfterARestore(t *testing.T) {
	w := newWorld(t).complete()
	founder := w.used("founder", bootstrapv1.OrderInit)
	require.NoError(t, env.Client.DeleteAllOf(ctx, &corev1.ConfigMap{}, client.InNamespace(w.cluster.Namespace)))
	late := w.machine("late", bootstrapv1.OrderInit)
	result := w.mustReconcile(late)
	w.requireWaiting(late, bootstrapv1.WaitingForControlPlaneReason, "Machine founder may have founded Cluster c")
	require.Equal(t, lockRetry, result.RequeueAfter)
	require.False(t, w.lockIsHeld())

	w.mustReconcile(founder)
	require.Contains(t, w.requireData(founder).config, "cluster-init", "the founder's data stay as they are")
}

func TestReconcile_FoundersLockPassesOnWhenItsMachineIsGone(t *testing.T) {
	w := newWorld(t).complete()
	first := w.machine("first", bootstrapv1.OrderInit)
	w.mustReconcile(first)
	machine := w.machineOf(first)
	require.NoError(t, env.Client.Delete(ctx, machine))

	second := w.machine("second", bootstrapv1.OrderInit)
	w.mustReconcile(second)
	w.mustReconcile(second)
	require.Equal(t, true, w.requireData(second).config["cluster-init"])
}

// A config that was restored before it had data: the cluster lives, so it joins.
func TestReconcile_DataOfAnUnusedInitBecomeAJoinOnceTheClusterLives(t *testing.T) {
	w := newWorld(t).complete()
	config := w.machine("m", bootstrapv1.OrderInit)
	w.mustReconcile(config)
	require.Contains(t, w.requireData(config).config, "cluster-init")
	w.loseStatus(config)
	w.initialize()
	w.mustReconcile(config)
	w.mustReconcile(config)
	data := w.requireData(config)
	require.NotContains(t, data.config, "cluster-init")
	require.Contains(t, data.config, "server")
	require.NotContains(t, data.all(), "PRIVATE KEY")
}

// All servers were lost for good, and a human let the cluster be founded again. That Cluster API remembers the old one
// is no obstacle.
func TestReconcile_FoundsAnewWhenAHumanAllowedIt(t *testing.T) {
	w := newWorld(t).complete().initialize()
	config := w.machine("m", bootstrapv1.OrderInitAnew)
	w.mustReconcile(config)
	data := w.requireData(config)
	require.Equal(t, true, data.config["cluster-init"])
	require.NotContains(t, data.config, "server")
}

func TestReconcile_LockIsFreeAfterARefusal(t *testing.T) {
	w := newWorld(t).complete()
	config := w.machine("m", bootstrapv1.OrderInit, func(_ *clusterv1.Machine, c *bootstrapv1.KThreesConfig) {
		c.Spec.Files = []bootstrapv1.File{{Path: "/f", Content: "!", Encoding: bootstrapv1.Base64}}
	})
	w.mustReconcile(config)
	require.Equal(t, bootstrapv1.InvalidConfigReason, conditions.GetReason(config, bootstrapv1.DataSecretAvailableCondition))
	require.False(t, w.lockIsHeld())
}

// Whichever write fails, the next pass completes the work: one Secret, one founder.
func TestReconcile_CrashBetweenAnyTwoWritesConverges(t *testing.T) {
	broken := errors.New("broken")
	for _, verb := range []testenv.Verb{testenv.Create, testenv.Patch} {
		for nth := 1; nth <= 3; nth++ {
			t.Run(fmt.Sprintf("%s %d", verb, nth), func(t *testing.T) {
				w := newWorld(t).complete()
				config := w.machine("m", bootstrapv1.OrderInit)
				failing := testenv.FailOn(env.Client, verb, nth, broken)
				w.r.Client = failing
				_, firstErr := w.reconcile(config)

				w.r.Client = env.Client
				w.mustReconcile(config)
				require.Equal(t, true, w.requireData(config).config["cluster-init"], "%v", firstErr)
				require.True(t, metav1.IsControlledBy(w.secret(config), config))
				require.Contains(t, config.Annotations, clusterv1.MachineCertificatesExpiryDateAnnotation)
			})
		}
	}
}

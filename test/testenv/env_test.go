package testenv_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capk3s/capk3s/test/testenv"
)

var env *testenv.Env

func TestMain(m *testing.M) { testenv.Main(m, &env) }

func TestBuilders_MakeObjectsThatTheAPIServerAccepts(t *testing.T) {
	cluster := testenv.Cluster(env.Namespace(t), "c")
	env.Create(t, cluster)
	controlPlane := testenv.ControlPlane(cluster)
	env.Create(t, controlPlane)
	machine := testenv.Machine(cluster, "m", testenv.OfControlPlane(controlPlane))
	env.Create(t, machine)
	env.Create(t, testenv.Config(machine), testenv.Secret(cluster, "s", map[string]string{"value": "x"}))

	require.True(t, metav1.IsControlledBy(machine, controlPlane))
}

func TestCount_TellsReadsFromWrites(t *testing.T) {
	ctx := context.Background()
	c, counter := testenv.Count(env.Client)
	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: env.Namespace(t), Name: "x"}}

	require.NoError(t, c.Create(ctx, configMap))
	require.NoError(t, c.Get(ctx, client.ObjectKeyFromObject(configMap), configMap))

	require.Equal(t, []testenv.Call{{Verb: testenv.Create, Type: "*v1.ConfigMap", Name: "x"}}, counter.Writes())
	require.Equal(t, []testenv.Call{{Verb: testenv.Get, Type: "*v1.ConfigMap", Name: "x"}}, counter.Reads())
	counter.Reset()
	require.Empty(t, counter.Calls())
}

func TestFailOn_FailsOnlyTheNthCall(t *testing.T) {
	ctx := context.Background()
	broken := errors.New("broken")
	c := testenv.FailOn(env.Client, testenv.List, 2, broken)

	require.NoError(t, c.List(ctx, &corev1.NamespaceList{}))
	require.ErrorIs(t, c.List(ctx, &corev1.NamespaceList{}), broken)
	require.NoError(t, c.List(ctx, &corev1.NamespaceList{}))
}

func TestStartControllerManager_CollectsWhatLostItsOwner(t *testing.T) {
	env.StartControllerManager(t)
	ctx := context.Background()
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: env.Namespace(t), Name: "owner"}}
	env.Create(t, owner)
	owned := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: owner.Namespace, Name: "owned",
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, corev1.SchemeGroupVersion.WithKind("ConfigMap"))},
	}}
	env.Create(t, owned)

	require.NoError(t, env.Client.Delete(ctx, owner))

	require.Eventually(t, func() bool {
		return apierrors.IsNotFound(env.Client.Get(ctx, client.ObjectKeyFromObject(owned), owned))
	}, time.Minute, 100*time.Millisecond)
}

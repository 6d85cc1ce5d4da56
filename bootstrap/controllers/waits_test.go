package controllers

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
	"github.com/capk3s/capk3s/test/testenv"
)

func TestReconcile_WaitsAndSaysForWhat(t *testing.T) {
	fromSecret := bootstrapv1.FileSource{Secret: bootstrapv1.SecretFileSource{Name: "content", Key: "key"}}
	tests := map[string]struct {
		prepare   func(*world) *bootstrapv1.KThreesConfig
		reason    string
		message   string
		condition string
		then      func(*world)
	}{
		"infrastructure": {
			prepare: func(w *world) *bootstrapv1.KThreesConfig {
				w.updateStatus(w.cluster, func() { w.cluster.Status.Initialization.InfrastructureProvisioned = ptr.To(false) })
				return w.complete().initialize().machine("m", "worker")
			},
			reason: bootstrapv1.WaitingForInfrastructureReason, message: "Waiting for the infrastructure of Cluster c",
			then: func(w *world) { w.provision() },
		},
		"endpoint": {
			prepare: func(w *world) *bootstrapv1.KThreesConfig {
				w.update(w.cluster, func() { w.cluster.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{} })
				return w.complete().initialize().machine("m", "worker")
			},
			reason: bootstrapv1.WaitingForEndpointReason, message: "spec.controlPlaneEndpoint",
			then: func(w *world) {
				w.update(w.cluster, func() { w.cluster.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: "h", Port: 1} })
			},
		},
		"version": {
			prepare: func(w *world) *bootstrapv1.KThreesConfig {
				return w.complete().initialize().machine("m", "worker", func(m *clusterv1.Machine, _ *bootstrapv1.KThreesConfig) { m.Spec.Version = "" })
			},
			reason: bootstrapv1.WaitingForVersionReason, message: "Waiting for spec.version of Machine m",
			then: func(w *world) {
				machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: w.cluster.Namespace, Name: "m"}}
				w.update(machine, func() { machine.Spec.Version = testenv.Version })
			},
		},
		"control plane, as a worker": {
			prepare: func(w *world) *bootstrapv1.KThreesConfig { return w.complete().machine("m", "worker") },
			reason:  bootstrapv1.WaitingForControlPlaneReason, message: "control plane of Cluster c",
			then: func(w *world) { w.initialize() },
		},
		"control plane, as a server that joins": {
			prepare: func(w *world) *bootstrapv1.KThreesConfig { return w.complete().machine("m", bootstrapv1.OrderJoin) },
			reason:  bootstrapv1.WaitingForControlPlaneReason, message: "control plane of Cluster c",
			then: func(w *world) { w.initialize() },
		},
		"control plane, as a server without an order": {
			prepare: func(w *world) *bootstrapv1.KThreesConfig { return w.complete().machine("m", "no order") },
			reason:  bootstrapv1.WaitingForControlPlaneReason, message: "control plane of Cluster c",
			then: func(w *world) { w.initialize() },
		},
		"token": {
			prepare: func(w *world) *bootstrapv1.KThreesConfig {
				w.createCAs()
				return w.machine("m", bootstrapv1.OrderInit)
			},
			reason: bootstrapv1.WaitingForTokenReason, message: "token of Cluster c", condition: bootstrapv1.TokenAvailableCondition,
			then: func(w *world) { w.createToken() },
		},
		"certificates": {
			prepare: func(w *world) *bootstrapv1.KThreesConfig {
				w.createToken()
				return w.machine("m", bootstrapv1.OrderInit)
			},
			reason: bootstrapv1.WaitingForCertificatesReason, message: "certificate authorities of Cluster c",
			condition: bootstrapv1.CertificatesAvailableCondition,
			then:      func(w *world) { w.createCAs() },
		},
		"content": {
			prepare: func(w *world) *bootstrapv1.KThreesConfig {
				return w.complete().initialize().machine("m", "worker", func(_ *clusterv1.Machine, c *bootstrapv1.KThreesConfig) {
					c.Spec.Files = []bootstrapv1.File{{Path: "/a", Content: "a"}, {Path: "/b", ContentFrom: fromSecret}}
				})
			},
			reason: bootstrapv1.WaitingForSecretReason, message: "spec.files[1].contentFrom.secret: waiting for Secret content",
			then: func(w *world) {
				env.Create(w.t, testenv.Secret(w.cluster, "content", map[string]string{"key": ""}, opaque))
			},
		},
		"key of content": {
			prepare: func(w *world) *bootstrapv1.KThreesConfig {
				env.Create(w.t, testenv.Secret(w.cluster, "content", map[string]string{"other": "x"}, opaque, func(s *corev1.Secret) { s.Labels = nil }))
				return w.complete().initialize().machine("m", "worker", func(_ *clusterv1.Machine, c *bootstrapv1.KThreesConfig) {
					c.Spec.Files = []bootstrapv1.File{{Path: "/b", ContentFrom: fromSecret}}
				})
			},
			reason: bootstrapv1.WaitingForSecretReason, message: "waiting for key key of Secret content",
			then: func(w *world) {
				secret := w.readSecret("content")
				w.update(secret, func() { secret.Data["key"] = []byte("x") })
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			config := tt.prepare(w)
			w.mustReconcile(config)
			w.requireWaiting(config, tt.reason, tt.message)
			if tt.condition != "" {
				require.True(t, conditions.IsFalse(config, tt.condition))
				require.Equal(t, tt.reason, conditions.GetReason(config, tt.condition))
			}
			require.Equal(t, 1, strings.Count(strings.Join(w.events(), "\n"), "Normal "+tt.reason), "one event")

			w.counter.Reset()
			w.mustReconcile(config)
			require.Empty(t, w.counter.Writes(), "nothing is written while nothing changes")
			require.Empty(t, w.events())

			tt.then(w)
			w.mustReconcile(config)
			w.requireData(config)
			require.True(t, conditions.IsTrue(config, bootstrapv1.TokenAvailableCondition))
			require.True(t, conditions.IsTrue(config, bootstrapv1.CertificatesAvailableCondition))
		})
	}
}

func TestReconcile_RefusesWhatCantBecomeBootstrapData(t *testing.T) {
	tests := map[string]struct {
		change  func(*clusterv1.Machine, *bootstrapv1.KThreesConfig)
		message string
	}{
		"version": {
			func(m *clusterv1.Machine, _ *bootstrapv1.KThreesConfig) { m.Spec.Version = "v1.36.3" },
			`spec.version of Machine m: "v1.36.3" isn't the version of a K3s release: write it as v1.36.3+k3s1`,
		},
		"content": {
			func(_ *clusterv1.Machine, c *bootstrapv1.KThreesConfig) {
				c.Spec.Files = []bootstrapv1.File{{Path: "/f", Content: "!", Encoding: bootstrapv1.Base64}}
			},
			"spec.files[0]: the content of file /f isn't base64, as its encoding says",
		},
		"owner": {
			func(_ *clusterv1.Machine, c *bootstrapv1.KThreesConfig) {
				c.Spec.Files = []bootstrapv1.File{{Path: "/f", Content: "c", Owner: "root root"}}
			},
			"spec.files[0]: the owner of file /f must be user:group",
		},
		"setting": {
			func(_ *clusterv1.Machine, c *bootstrapv1.KThreesConfig) {
				c.Spec.AgentConfig.ExtraConfig = bootstrapv1.ExtraConfig{"debug": apiextensionsv1.JSON{Raw: []byte(`"perhaps"`)}}
			},
			"spec.agentConfig.extraConfig: the value of debug must be true or false",
		},
		"setting that an agent doesn't know": {
			func(_ *clusterv1.Machine, c *bootstrapv1.KThreesConfig) {
				c.Spec.AgentConfig.ExtraConfig = bootstrapv1.ExtraConfig{"snapshoter": apiextensionsv1.JSON{Raw: []byte(`"native"`)}}
			},
			"spec.agentConfig.extraConfig: an agent that doesn't know snapshoter doesn't start",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t).complete().initialize()
			config := w.machine("m", "worker", tt.change)
			w.mustReconcile(config)
			w.requireWaiting(config, bootstrapv1.InvalidConfigReason, tt.message)
			require.Contains(t, strings.Join(w.events(), "\n"), "Warning InvalidConfig ")
		})
	}
}

func TestReconcile_UnusableTokenIsSaidAndNotShown(t *testing.T) {
	w := newWorld(t).initialize()
	w.createCAs()
	env.Create(t, testenv.Secret(w.cluster, "c-token", map[string]string{"value": "K10" + serverToken}))
	config := w.machine("m", "worker")
	w.mustReconcile(config)
	w.requireWaiting(config, "TokenInvalid", "Secret c-token")
	require.NotContains(t, conditions.GetMessage(config, bootstrapv1.DataSecretAvailableCondition), serverToken)
	require.True(t, conditions.IsFalse(config, bootstrapv1.TokenAvailableCondition))
}

// An error is never read as absence.
func TestReconcile_ErrorsAreReturned(t *testing.T) {
	w := newWorld(t).complete().initialize()
	config := w.machine("m", "worker")
	w.mustReconcile(w.machine("other", "worker"))
	broken := errors.New("broken")
	for nth := 1; nth <= 40; nth++ {
		failing := testenv.FailOn(env.Client, testenv.Get, nth, broken)
		w.r.Client, w.r.APIReader = failing, failing
		_, err := w.reconcile(config)
		if conditions.IsTrue(config, bootstrapv1.DataSecretAvailableCondition) {
			require.Greater(t, nth, 10, "every read was tried")
			return
		}
		require.ErrorIs(t, err, broken, "read %d", nth)
		require.Nil(t, w.secret(config))
	}
	require.Fail(t, "never succeeded")
}

func TestReconcile_CertificatesAndTokenAreNeverWritten(t *testing.T) {
	w := newWorld(t)
	for _, order := range []string{bootstrapv1.OrderInit, bootstrapv1.OrderJoin, "worker"} {
		w.mustReconcile(w.machine(order, order))
	}
	secrets := &corev1.SecretList{}
	require.NoError(t, env.Client.List(ctx, secrets, client.InNamespace(w.cluster.Namespace)))
	require.Empty(t, secrets.Items)

	w.complete().initialize()
	before := &corev1.SecretList{}
	require.NoError(t, env.Client.List(ctx, before, client.InNamespace(w.cluster.Namespace)))
	for _, order := range []string{bootstrapv1.OrderInit, bootstrapv1.OrderJoin, "worker"} {
		config := &bootstrapv1.KThreesConfig{ObjectMeta: metav1.ObjectMeta{Namespace: w.cluster.Namespace, Name: order}}
		w.mustReconcile(config)
	}
	for i := range before.Items {
		require.Equal(t, before.Items[i].ResourceVersion, w.readSecret(before.Items[i].Name).ResourceVersion)
	}
}

func TestReconcile_PausedDoesNothing(t *testing.T) {
	w := newWorld(t).complete().initialize()
	w.update(w.cluster, func() { w.cluster.Spec.Paused = ptr.To(true) })
	config := w.machine("m", "worker")
	w.mustReconcile(config)
	require.True(t, conditions.IsTrue(config, clusterv1.PausedCondition))
	require.Nil(t, w.secret(config))
	w.counter.Reset()
	w.mustReconcile(config)
	require.Empty(t, w.counter.Writes())

	w.update(w.cluster, func() { w.cluster.Spec.Paused = ptr.To(false) })
	w.mustReconcile(config)
	w.mustReconcile(config)
	w.requireData(config)
	require.True(t, conditions.IsFalse(config, clusterv1.PausedCondition))
}

func TestReconcile_WithoutOwnerOrClusterWaitsQuietly(t *testing.T) {
	w := newWorld(t).complete().initialize()
	orphan := &bootstrapv1.KThreesConfig{ObjectMeta: metav1.ObjectMeta{Namespace: w.cluster.Namespace, Name: "orphan"}}
	env.Create(t, orphan)
	named := w.machine("other", "worker", func(m *clusterv1.Machine, _ *bootstrapv1.KThreesConfig) { m.Spec.Bootstrap.ConfigRef.Name = "another" })
	lonely := w.machine("lonely", "worker", func(m *clusterv1.Machine, _ *bootstrapv1.KThreesConfig) { m.Spec.ClusterName = "nowhere" })
	for _, config := range []*bootstrapv1.KThreesConfig{orphan, named, lonely} {
		w.counter.Reset()
		w.mustReconcile(config)
		require.Empty(t, w.counter.Writes(), config.Name)
		require.Nil(t, w.secret(config))
	}
	gone := &bootstrapv1.KThreesConfig{ObjectMeta: metav1.ObjectMeta{Namespace: w.cluster.Namespace, Name: "gone"}}
	_, err := w.r.Reconcile(ctx, requestFor(gone.Namespace, gone.Name)[0])
	require.NoError(t, err)
	require.True(t, apierrors.IsNotFound(env.Client.Get(ctx, client.ObjectKeyFromObject(gone), gone)))
}

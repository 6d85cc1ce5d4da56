package controllers

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
	"github.com/capk3s/capk3s/test/testenv"
)

// soon is how long a change may take to have its effect. It is less than any timer of the controller.
const soon = 4 * time.Second

// startManager runs the controller in a manager with the rights of the provider's role and no other.
func (w *world) startManager() {
	w.t.Helper()
	config := rest.CopyConfig(env.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: w.grantRole()}
	labelled, err := labels.NewRequirement(clusterv1.ClusterNameLabel, selection.Exists, nil)
	require.NoError(w.t, err)
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:  env.Scheme,
		Metrics: server.Options{BindAddress: "0"},
		Cache: cache.Options{
			DefaultNamespaces: map[string]cache.Config{w.cluster.Namespace: {}},
			ByObject:          map[client.Object]cache.ByObject{&corev1.Secret{}: {Label: labels.NewSelector().Add(*labelled)}},
		},
		Client: client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.ConfigMap{}}}},
	})
	require.NoError(w.t, err)
	r := &Reconciler{Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Recorder: mgr.GetEventRecorder("test")}
	running, stop := context.WithCancel(ctx)
	require.NoError(w.t, r.SetupWithManager(running, mgr, controller.Options{SkipNameValidation: ptr.To(true)}))
	done := make(chan error, 1)
	go func() { done <- mgr.Start(running) }()
	w.t.Cleanup(func() {
		stop()
		require.NoError(w.t, <-done)
	})
	require.True(w.t, mgr.GetCache().WaitForCacheSync(running))
}

// grantRole binds the generated role to a user and returns the user's name once that is in force. Who may list and
// watch may also get: these tests mostly read without the manager's cache.
func (w *world) grantRole() string {
	w.t.Helper()
	content, err := os.ReadFile("../../config/rbac/bootstrap/role.yaml")
	require.NoError(w.t, err)
	role := &rbacv1.ClusterRole{}
	require.NoError(w.t, yaml.UnmarshalStrict(content, role))
	name := "bootstrap-provider-" + w.cluster.Namespace
	role.ObjectMeta = metav1.ObjectMeta{Name: name}
	for i, rule := range role.Rules {
		if slices.Contains(rule.Verbs, "list") {
			role.Rules[i].Verbs = append(rule.Verbs, "get")
		}
	}
	env.Create(w.t, role, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: name}},
	})
	require.Eventually(w.t, func() bool { return w.allowed(name, "", "secrets", "list") }, 10*time.Second, 10*time.Millisecond)
	return name
}

// allowed asks the API server whether a user may do something in the Cluster's namespace.
func (w *world) allowed(user, group, resource, verb string) bool {
	w.t.Helper()
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: w.cluster.Namespace, Group: group, Resource: resource, Verb: verb,
		},
	}}
	require.NoError(w.t, env.Client.Create(context.Background(), review))
	return review.Status.Allowed
}

// eventually waits until the config's DataSecretAvailable condition has the reason.
func (w *world) eventually(config *bootstrapv1.KThreesConfig, within time.Duration, reason string) {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		env.Refresh(w.t, config)
		return conditions.GetReason(config, bootstrapv1.DataSecretAvailableCondition) == reason
	}, within, 20*time.Millisecond, "%s, not %s", conditions.GetReason(config, bootstrapv1.DataSecretAvailableCondition), reason)
}

// Each thing that a config can wait for is there within two seconds after it came, without a timer.
func TestManager_ChangesTakeEffectAtOnce(t *testing.T) {
	w := newWorld(t)
	w.updateStatus(w.cluster, func() { w.cluster.Status.Initialization.InfrastructureProvisioned = ptr.To(false) })
	w.update(w.cluster, func() { w.cluster.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{} })
	w.startManager()
	config := w.machine("m", "worker", func(m *clusterv1.Machine, c *bootstrapv1.KThreesConfig) {
		m.Spec.Version = ""
		c.Spec.Files = []bootstrapv1.File{{Path: "/f", ContentFrom: bootstrapv1.FileSource{
			Secret: bootstrapv1.SecretFileSource{Name: "content", Key: "key"},
		}}}
	})
	const starting = 20 * time.Second
	w.eventually(config, starting, bootstrapv1.WaitingForInfrastructureReason)

	w.provision()
	w.eventually(config, soon, bootstrapv1.WaitingForVersionReason)
	machine := w.machineOf(config)
	w.update(machine, func() { machine.Spec.Version = testenv.Version })
	w.eventually(config, soon, bootstrapv1.WaitingForEndpointReason)
	w.update(w.cluster, func() { w.cluster.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: "h", Port: 6443} })
	w.eventually(config, soon, bootstrapv1.WaitingForControlPlaneReason)
	w.initialize()
	w.eventually(config, soon, bootstrapv1.WaitingForCertificatesReason)
	w.createCAs()
	w.eventually(config, soon, bootstrapv1.WaitingForTokenReason)
	w.createToken()
	w.eventually(config, soon, bootstrapv1.WaitingForSecretReason)

	content := testenv.Secret(w.cluster, "content", map[string]string{"other": "x"}, opaque)
	env.Create(t, content)
	w.update(w.cluster, func() { w.cluster.Spec.Paused = ptr.To(true) })
	require.Eventually(t, func() bool {
		env.Refresh(t, config)
		return conditions.IsTrue(config, clusterv1.PausedCondition)
	}, soon, 20*time.Millisecond)
	w.update(content, func() { content.Data["key"] = []byte("x") })
	w.update(w.cluster, func() { w.cluster.Spec.Paused = ptr.To(false) })
	w.eventually(config, soon, bootstrapv1.AvailableReason)
	require.Equal(t, "x", w.requireData(config).files["/f"])

	w.take(config)
	w.deleteSecret(config)
	w.eventually(config, soon, bootstrapv1.DataSecretLostReason)
}

// The provider's role is enough for the founder, and events are written.
func TestManager_FirstServer(t *testing.T) {
	w := newWorld(t).complete()
	w.startManager()
	config := w.machine("m", bootstrapv1.OrderInit)
	w.eventually(config, 20*time.Second, bootstrapv1.AvailableReason)
	require.Contains(t, w.requireData(config).config, "cluster-init")
	require.True(t, w.lockIsHeld())
	w.take(config)
	w.initialize()
	require.Eventually(t, func() bool { return !w.lockIsHeld() }, soon, 20*time.Millisecond)
	require.Eventually(t, func() bool {
		list := &corev1.EventList{}
		require.NoError(t, env.Client.List(ctx, list, client.InNamespace(w.cluster.Namespace)))
		for i := range list.Items {
			if list.Items[i].Reason == "DataSecretCreated" && list.Items[i].InvolvedObject.Name == "m" {
				return true
			}
		}
		return false
	}, 10*time.Second, 50*time.Millisecond)
}

// A Secret without a cluster's label isn't watched: the fallback timer finds it.
func TestManager_UnlabelledContentIsFoundByTheTimer(t *testing.T) {
	w := newWorld(t).complete().initialize()
	w.startManager()
	config := w.machine("m", "worker", func(_ *clusterv1.Machine, c *bootstrapv1.KThreesConfig) {
		c.Spec.Files = []bootstrapv1.File{{Path: "/f", ContentFrom: bootstrapv1.FileSource{
			Secret: bootstrapv1.SecretFileSource{Name: "content", Key: "key"},
		}}}
	})
	w.eventually(config, 20*time.Second, bootstrapv1.WaitingForSecretReason)
	env.Create(t, testenv.Secret(w.cluster, "content", map[string]string{"key": "x"}, opaque, func(s *corev1.Secret) { s.Labels = nil }))
	w.eventually(config, contentRetry+soon, bootstrapv1.AvailableReason)
}

package controllers

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
	"github.com/capk3s/capk3s/test/testenv"
)

// restrict gives the reconciler the rights of the provider's role and no other.
func (w *world) restrict() *world {
	w.t.Helper()
	config := rest.CopyConfig(env.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: w.grantRole()}
	restricted, err := client.NewWithWatch(config, client.Options{Scheme: env.Scheme})
	require.NoError(w.t, err)
	restricted, w.counter = testenv.Count(restricted)
	w.r.Client, w.r.APIReader = restricted, restricted
	return w
}

// keptByAControlPlane are the Secrets of cluster c as its control plane leaves them.
func (w *world) keptByAControlPlane() *world {
	w.t.Helper()
	w.complete()
	controlPlane := testenv.ControlPlane(w.cluster)
	env.Create(w.t, controlPlane)
	secrets := w.secrets()
	for _, name := range keptNames("c") {
		secret, found := secrets[name]
		if !found { // The root and the kubeconfig, which the bootstrap provider doesn't need.
			secret = *testenv.Secret(w.cluster, name, map[string]string{"tls.key": "PRIVATE KEY", "value": "PRIVATE KEY"})
			env.Create(w.t, &secret)
		}
		w.update(&secret, func() {
			secret.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(controlPlane, controlplanev1.GroupVersion.WithKind("KThreesControlPlane"))}
		})
	}
	return w
}

func (w *world) secrets() map[string]corev1.Secret {
	w.t.Helper()
	found := &corev1.SecretList{}
	require.NoError(w.t, env.Client.List(ctx, found, client.InNamespace(w.cluster.Namespace)))
	secrets := map[string]corev1.Secret{}
	for _, secret := range found.Items {
		secrets[secret.Name] = secret
	}
	return secrets
}

// hostile is what a tenant may do who can't write Secrets. It returns the config to reconcile.
type hostile func(w *world) *bootstrapv1.KThreesConfig

// Whatever KThreesConfig there is, the bootstrap provider writes no Secret of a control plane, not even one that
// doesn't exist yet.
func TestReconcile_NoConfigMakesItTouchATokenOrACA(t *testing.T) {
	tests := map[string]hostile{
		"that uses a token as its bootstrap data": func(w *world) *bootstrapv1.KThreesConfig {
			config := w.machine("c-token", "worker", func(m *clusterv1.Machine, _ *bootstrapv1.KThreesConfig) {
				m.Spec.Bootstrap.DataSecretName = ptr.To("c-token")
			})
			w.updateStatus(config, func() { config.Status.DataSecretName = "c-token" })
			return config
		},
		"that says to have a token as its bootstrap data": func(w *world) *bootstrapv1.KThreesConfig {
			config := w.machine("m", "worker", func(m *clusterv1.Machine, _ *bootstrapv1.KThreesConfig) {
				m.Spec.Bootstrap.DataSecretName = ptr.To("c-token")
			})
			w.updateStatus(config, func() { config.Status.DataSecretName = "c-token" })
			return config
		},
		"that is controlled by the control plane and marked as its work": func(w *world) *bootstrapv1.KThreesConfig {
			config := w.machine("c-token", "worker")
			w.update(config, func() {
				config.Labels = map[string]string{dataLabel: "", controlplanev1.ManagedLabel: ""}
				owner := w.secrets()["c-token"].OwnerReferences[0]
				owner.Controller = nil
				config.OwnerReferences = append(config.OwnerReferences, owner)
			})
			return config
		},
	}
	for _, suffix := range keptNames("") {
		for _, cluster := range []string{"c", "another"} {
			name := cluster + suffix
			tests["named "+name] = func(w *world) *bootstrapv1.KThreesConfig { return w.machine(name, "worker") }
		}
	}
	for name, attack := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t).keptByAControlPlane().initialize().restrict()
			before := w.secrets()
			config := attack(w)
			for range 3 {
				w.mustReconcile(config)
			}
			after := w.secrets()
			for name := range before {
				require.Equal(t, before[name].ResourceVersion, after[name].ResourceVersion, name)
			}
			require.ElementsMatch(t, slices.Collect(maps.Keys(before)), slices.Collect(maps.Keys(after)))
		})
	}
}

// fileFrom are files with the content of the keys of a Secret.
func fileFrom(secret string, keys ...string) []bootstrapv1.File {
	var files []bootstrapv1.File
	for _, key := range keys {
		source := bootstrapv1.FileSource{Secret: bootstrapv1.SecretFileSource{Name: secret, Key: key}}
		files = append(files, bootstrapv1.File{Path: "/" + key, ContentFrom: source})
	}
	return files
}

// The owner references of a Secret may have been lost in a restore.
func TestReconcile_SecretsOfAControlPlaneAreItsOwnWithoutReferencesToo(t *testing.T) {
	w := newWorld(t).complete().initialize().restrict()
	config := w.machine("c-token", "worker")
	before := w.readSecret("c-token")
	w.mustReconcile(config)
	require.Equal(t, bootstrapv1.ForeignSecretReason, conditions.GetReason(config, bootstrapv1.DataSecretAvailableCondition))
	require.Equal(t, before.ResourceVersion, w.readSecret("c-token").ResourceVersion)
}

func TestReconcile_NoFileHoldsAKey(t *testing.T) {
	ofAnother := func(s *corev1.Secret) { opaque(s); s.Labels[clusterv1.ClusterNameLabel] = "d" }
	for name, tt := range map[string]struct {
		secret, key string
		change      func(*corev1.Secret)
		refused     bool
	}{
		"a token of Cluster API's type":    {"d-token", "value", func(*corev1.Secret) {}, true},
		"a user's token for a cluster":     {"d-token", "value", ofAnother, true},
		"the bootstrap data of a server":   {"server-0", "value", func(*corev1.Secret) {}, true},
		"a CA's key":                       {"d-ca", "tls.key", ofAnother, true},
		"a CA's certificate":               {"d-ca", "tls.crt", func(*corev1.Secret) {}, false},
		"another Secret that ends in -ca":  {"registry-ca", "ca.crt", opaque, false},
		"another Secret without any label": {"other", "key", func(s *corev1.Secret) { opaque(s); s.Labels = nil }, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t).complete().initialize().restrict()
			env.Create(t, testenv.Secret(w.cluster, tt.secret, map[string]string{tt.key: "content of the Secret"}, tt.change))
			config := w.machine("m", "worker", func(_ *clusterv1.Machine, c *bootstrapv1.KThreesConfig) { c.Spec.Files = fileFrom(tt.secret, tt.key) })
			w.mustReconcile(config)
			if tt.refused {
				w.requireWaiting(config, bootstrapv1.InvalidConfigReason, "Secret "+tt.secret+" holds keys of a cluster")
				return
			}
			require.Equal(t, "content of the Secret", w.requireData(config).files["/"+tt.key])
		})
	}
}

// Not only files: no field that names a Secret gets a key of a cluster.
func TestReconcile_NoSettingHoldsAKey(t *testing.T) {
	token := bootstrapv1.FileSource{Secret: bootstrapv1.SecretFileSource{Name: "d-token", Key: "value"}}
	for field, set := range map[string]func(*bootstrapv1.KThreesConfigSpec){
		"agentConfig.registries.contentFrom":  func(s *bootstrapv1.KThreesConfigSpec) { s.AgentConfig.Registries.ContentFrom = token },
		"serverConfig.datastore.endpointFrom": func(s *bootstrapv1.KThreesConfigSpec) { s.ServerConfig.Datastore.EndpointFrom = token },
		"serverConfig.datastore.tlsSecret": func(s *bootstrapv1.KThreesConfigSpec) {
			s.ServerConfig.Datastore = bootstrapv1.DatastoreSpec{Endpoint: "postgres://db", TLSSecret: bootstrapv1.SecretReference{Name: "d-token"}}
		},
		"serverConfig.etcdSnapshots.s3.secret": func(s *bootstrapv1.KThreesConfigSpec) {
			s.ServerConfig.EtcdSnapshots.S3 = bootstrapv1.SnapshotS3Spec{Bucket: "b", Secret: bootstrapv1.SecretReference{Name: "d-token"}}
		},
	} {
		t.Run(field, func(t *testing.T) {
			w := newWorld(t).complete().initialize().restrict()
			env.Create(t, testenv.Secret(w.cluster, "d-token", map[string]string{"value": "content of the Secret", "ca.crt": "content of the Secret"}))
			config := w.machine("m", bootstrapv1.OrderJoin, func(_ *clusterv1.Machine, c *bootstrapv1.KThreesConfig) { set(&c.Spec) })
			w.mustReconcile(config)
			w.requireWaiting(config, bootstrapv1.InvalidConfigReason, "spec."+field)
			w.requireWaiting(config, bootstrapv1.InvalidConfigReason, "Secret d-token holds keys of a cluster")
		})
	}
}

// What a config names is looked for in its own namespace, however it is written.
func TestReconcile_ReadsNothingOfAnotherNamespace(t *testing.T) {
	other := newWorld(t).complete().initialize()
	foreign := other.machine("m", "worker")
	env.Create(t, testenv.Secret(other.cluster, "content", map[string]string{"key": "theirs"}, opaque))
	theirs := other.cluster.Namespace

	for _, name := range []string{"content", theirs + "/content", "../" + theirs + "/content", "../../" + theirs + "/secrets/content", "%2e%2e/" + theirs} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t).complete().initialize().restrict()
			config := w.machine("m", "worker", func(_ *clusterv1.Machine, c *bootstrapv1.KThreesConfig) { c.Spec.Files = fileFrom(name, "key") })
			_, _ = w.reconcile(config)
			require.Nil(t, w.secret(config))
			require.False(t, conditions.IsTrue(config, bootstrapv1.DataSecretAvailableCondition))
		})
	}

	t.Run("the Machine of another namespace as owner", func(t *testing.T) {
		w := newWorld(t).restrict()
		config := testenv.Config(other.machineOf(foreign))
		config.Namespace = w.cluster.Namespace
		env.Create(t, config)
		w.mustReconcile(config)
		require.Nil(t, w.secret(config))
		require.Empty(t, w.counter.Writes())
	})
}

// The API server refuses the provider what only a mistake could make it do.
func TestRole_AllowsNothingButBootstrapData(t *testing.T) {
	w := newWorld(t)
	user := w.grantRole()
	for name, tt := range map[string]struct {
		group    string
		resource string
		verbs    []string
		allowed  bool
	}{
		"reads and writes Secrets": {"", "secrets", []string{"get", "list", "watch", "create", "patch"}, true},
		// Needed to change owners where OwnerReferencesPermissionEnforcement is on; no Secret is ever deleted.
		"owns Secrets":         {"", "secrets", []string{"delete"}, true},
		"replaces no Secret":   {"", "secrets", []string{"update", "deletecollection"}, false},
		"reads Machines":       {"cluster.x-k8s.io", "machines", []string{"get", "list", "watch"}, true},
		"changes no Machine":   {"cluster.x-k8s.io", "machines", []string{"create", "update", "patch", "delete"}, false},
		"changes no Cluster":   {"cluster.x-k8s.io", "clusters", []string{"create", "update", "patch", "delete"}, false},
		"makes no config":      {"bootstrap.cluster.x-k8s.io", "kthreesconfigs", []string{"create", "delete"}, false},
		"has no control plane": {"controlplane.cluster.x-k8s.io", "kthreescontrolplanes", []string{"get", "create", "update", "patch", "delete"}, false},
		"gets no more rights":  {"rbac.authorization.k8s.io", "clusterrolebindings", []string{"get", "create", "patch", "bind", "escalate"}, false},
		"is nobody else":       {"", "serviceaccounts", []string{"get", "create", "impersonate"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			for _, verb := range tt.verbs {
				require.Equal(t, tt.allowed, w.allowed(user, tt.group, tt.resource, verb), verb)
			}
		})
	}
}

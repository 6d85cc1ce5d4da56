package controllers

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
	"github.com/capk3s/capk3s/test/testenv"
)

// withSpec makes a config whose spec says what change adds to it.
func withSpec(change func(*bootstrapv1.KThreesConfigSpec)) func(*clusterv1.Machine, *bootstrapv1.KThreesConfig) {
	return func(_ *clusterv1.Machine, c *bootstrapv1.KThreesConfig) { change(&c.Spec) }
}

func sourceOf(secret, key string) bootstrapv1.FileSource {
	return bootstrapv1.FileSource{Secret: bootstrapv1.SecretFileSource{Name: secret, Key: key}}
}

// everySecret names a Secret wherever a spec can.
func everySecret(spec *bootstrapv1.KThreesConfigSpec) {
	spec.AgentConfig.Registries.ContentFrom = sourceOf("registries", "yaml")
	spec.ServerConfig.Datastore = bootstrapv1.DatastoreSpec{
		EndpointFrom: sourceOf("database", "endpoint"), TLSSecret: bootstrapv1.SecretReference{Name: "database-tls"},
	}
}

func (w *world) createSecrets() {
	w.t.Helper()
	env.Create(w.t,
		testenv.Secret(w.cluster, "registries", map[string]string{"yaml": "mirrors: {}\n"}, opaque),
		testenv.Secret(w.cluster, "database", map[string]string{"endpoint": "postgres://u:hunter2@db/k3s\n"}, opaque),
		testenv.Secret(w.cluster, "database-tls", map[string]string{"ca.crt": "CA", "tls.crt": "CERT", "tls.key": "KEY"}, opaque),
		testenv.Secret(w.cluster, "s3", map[string]string{
			"etcd-s3-access-key": "A", "etcd-s3-secret-key": "hunter3", "etcd-s3-endpoint-ca": "S3CA",
		}, opaque))
}

func TestReconcile_SettingsFromSecretsReachServersOnly(t *testing.T) {
	w := newWorld(t).complete().initialize()
	w.createSecrets()
	server := w.machine("server", bootstrapv1.OrderJoin, withSpec(everySecret))
	w.mustReconcile(server)
	data := w.requireData(server)
	require.Equal(t, "postgres://u:hunter2@db/k3s", data.config["datastore-endpoint"])
	require.NotContains(t, data.config, "server")
	for setting, content := range map[string]string{"datastore-cafile": "CA", "datastore-certfile": "CERT", "datastore-keyfile": "KEY"} {
		require.Equal(t, content, data.files[data.config[setting].(string)], setting)
	}
	require.Equal(t, "mirrors: {}\n", data.files["/etc/rancher/k3s/registries.yaml"])

	worker := w.machine("worker", "worker", withSpec(everySecret))
	w.mustReconcile(worker)
	data = w.requireData(worker)
	require.NotContains(t, data.all(), "hunter2")
	require.NotContains(t, data.config, "datastore-endpoint")
	require.Equal(t, "mirrors: {}\n", data.files["/etc/rancher/k3s/registries.yaml"])
	require.NotContains(t, strings.Join(w.events(), "\n"), "hunter2")
}

func TestReconcile_SnapshotsWithCredentials(t *testing.T) {
	w := newWorld(t).complete().initialize()
	w.createSecrets()
	config := w.machine("server", bootstrapv1.OrderJoin, withSpec(func(s *bootstrapv1.KThreesConfigSpec) {
		s.ServerConfig.EtcdSnapshots.S3 = bootstrapv1.SnapshotS3Spec{Bucket: "b", Secret: bootstrapv1.SecretReference{Name: "s3"}}
	}))
	w.mustReconcile(config)
	data := w.requireData(config)
	require.Equal(t, true, data.config["etcd-s3"])
	require.Equal(t, "A", data.config["etcd-s3-access-key"])
	require.Equal(t, "hunter3", data.config["etcd-s3-secret-key"])
	require.Equal(t, "S3CA", data.files[data.config["etcd-s3-endpoint-ca"].(string)])
}

// Each Secret is waited for, by its name and the field that names it.
func TestReconcile_WaitsForEachSecret(t *testing.T) {
	withS3 := func(s *bootstrapv1.KThreesConfigSpec) {
		s.ServerConfig.EtcdSnapshots.S3 = bootstrapv1.SnapshotS3Spec{Bucket: "b", Secret: bootstrapv1.SecretReference{Name: "s3"}}
	}
	tests := map[string]struct {
		change func(*bootstrapv1.KThreesConfigSpec)
		absent string
		drop   string
		want   string
	}{
		"registries":        {everySecret, "registries", "yaml", "spec.agentConfig.registries.contentFrom.secret: waiting for"},
		"endpoint":          {everySecret, "database", "endpoint", "spec.serverConfig.datastore.endpointFrom.secret: waiting for"},
		"certificates":      {everySecret, "database-tls", "tls.key", "spec.serverConfig.datastore.tlsSecret: waiting for"},
		"credentials of S3": {withS3, "s3", "etcd-s3-secret-key", "spec.serverConfig.etcdSnapshots.s3.secret: waiting for"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t).complete().initialize()
			w.createSecrets()
			secret := w.readSecret(tt.absent)
			whole := maps.Clone(secret.Data)
			w.update(secret, func() { delete(secret.Data, tt.drop) })
			config := w.machine("m", bootstrapv1.OrderJoin, withSpec(tt.change))
			w.mustReconcile(config)
			w.requireWaiting(config, bootstrapv1.WaitingForSecretReason, tt.want)
			w.requireWaiting(config, bootstrapv1.WaitingForSecretReason, tt.absent)
			require.Contains(t, strings.Join(w.events(), "\n"), tt.want)
			require.Len(t, w.r.secretToConfigs(ctx, secret), 1, "its changes are seen")

			require.NoError(t, env.Client.Delete(ctx, secret))
			w.mustReconcile(config)
			w.requireWaiting(config, bootstrapv1.WaitingForSecretReason, tt.absent)

			secret.ResourceVersion, secret.UID, secret.Data = "", "", whole
			env.Create(t, secret)
			w.mustReconcile(config)
			w.requireData(config)
		})
	}
}

func TestReconcile_RefusesContentThatCantBeUsed(t *testing.T) {
	tests := map[string]struct {
		change func(*bootstrapv1.KThreesConfigSpec)
		want   string
	}{
		"registries": {func(s *bootstrapv1.KThreesConfigSpec) {
			s.AgentConfig.Registries.Content = "mirrors:\n  a: {endpoints: [hunter2]}\n"
		}, "spec.agentConfig.registries: line 2 isn't what K3s expects"},
		"kubelet configuration": {func(s *bootstrapv1.KThreesConfigSpec) {
			s.AgentConfig.KubeletConfiguration = apiextensionsv1.JSON{Raw: []byte(`{"kind":"Kubelet"}`)}
		}, "spec.agentConfig.kubeletConfiguration.kind must be KubeletConfiguration"},
		"empty endpoint": {func(s *bootstrapv1.KThreesConfigSpec) {
			s.ServerConfig.Datastore.EndpointFrom = sourceOf("odd", "empty")
		}, "spec.serverConfig.datastore.endpointFrom: key empty of Secret odd is empty"},
		"endpoint of two lines": {func(s *bootstrapv1.KThreesConfigSpec) {
			s.ServerConfig.Datastore.EndpointFrom = sourceOf("odd", "lines")
		}, "spec.serverConfig.datastore.endpointFrom: key lines of Secret odd must be a single line"},
		"registries from a Secret": {func(s *bootstrapv1.KThreesConfigSpec) {
			s.AgentConfig.Registries.ContentFrom = sourceOf("odd", "yaml")
		}, "spec.agentConfig.registries: line 1 isn't what K3s expects"},
		"registries at a relative path": {func(s *bootstrapv1.KThreesConfigSpec) {
			s.AgentConfig.Registries.Content, s.AgentConfig.PrivateRegistry = "mirrors: {}", "registries.yaml"
		}, "spec.agentConfig.privateRegistry must be an absolute path"},
		"token as a label": {func(s *bootstrapv1.KThreesConfigSpec) {
			s.AgentConfig.NodeLabels = []string{"a=b", "t=" + serverToken}
		}, "spec.agentConfig.nodeLabels[1] holds the cluster's token"},
		"token as an argument": {func(s *bootstrapv1.KThreesConfigSpec) {
			s.AgentConfig.KubeletArgs = []string{"node-labels=t=" + agentToken}
		}, "spec.agentConfig.kubeletArgs[0] holds the cluster's token"},
		"another token as a name": {func(s *bootstrapv1.KThreesConfigSpec) {
			s.AgentConfig.NodeName = "{{ v1.region }}K10" + strings.Repeat("0a", 32) + "::server:x"
		}, "spec.agentConfig.nodeName holds the cluster's token"},
		"file of the operator": {func(s *bootstrapv1.KThreesConfigSpec) {
			s.Files = []bootstrapv1.File{{Path: "/a", Content: "a"}, {Path: "/etc/rancher/k3s/registries.yaml", Content: "a"}}
			s.AgentConfig.Registries.Content = "mirrors: {}"
		}, "spec.files[1].path: /etc/rancher/k3s/registries.yaml is written by the operator: remove it"},
		"file in the place of a folder": {func(s *bootstrapv1.KThreesConfigSpec) {
			s.Files = []bootstrapv1.File{{Path: "/opt/a", Content: "a"}, {Path: "/opt/a/b", Content: "a"}}
		}, "spec.files[0].path: /opt/a is the folder of /opt/a/b"},
		"file beside the commands": {func(s *bootstrapv1.KThreesConfigSpec) {
			s.Files = []bootstrapv1.File{{Path: "/run/cluster-api/k3s/preK3sCommands/999", Content: "reboot"}}
		}, "spec.files[0].path: /run/cluster-api/k3s/preK3sCommands/999 is in a folder of the operator"},
		"volatile file in Ignition": {func(s *bootstrapv1.KThreesConfigSpec) {
			s.Format, s.Files = bootstrapv1.Ignition, []bootstrapv1.File{{Path: "/run/a", Content: "a"}}
		}, "spec.files[0].path: Ignition writes /run/a before the machine has its /run/"},
		"more than a Secret holds": {func(s *bootstrapv1.KThreesConfigSpec) {
			s.Files = []bootstrapv1.File{{Path: "/a", ContentFrom: sourceOf("large", "a")}, {Path: "/b", ContentFrom: sourceOf("large", "a")}}
		}, "spec.files: the bootstrap data have "},
		"expression in Ignition": {func(s *bootstrapv1.KThreesConfigSpec) {
			s.Format, s.AgentConfig.NodeName = bootstrapv1.Ignition, "{{ ds.meta_data.hostname }}"
		}, "spec.agentConfig.nodeName holds an expression over cloud-init's instance data"},
		"config for Ignition": {func(s *bootstrapv1.KThreesConfigSpec) {
			s.Format, s.Ignition.AdditionalConfig = bootstrapv1.Ignition, "hunter2"
		}, "spec.ignition.additionalConfig isn't a config that Ignition takes"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t).complete().initialize()
			env.Create(t,
				testenv.Secret(w.cluster, "odd", map[string]string{"empty": "\n", "lines": "hunter2\nx", "yaml": "mirrors: hunter2"}, opaque),
				testenv.Secret(w.cluster, "large", map[string]string{"a": incompressible(500 << 10)}, opaque))
			config := w.machine("m", bootstrapv1.OrderJoin, withSpec(tt.change))
			w.mustReconcile(config)
			w.requireWaiting(config, bootstrapv1.InvalidConfigReason, tt.want)
			require.NotContains(t, config.Annotations, clusterv1.MachineCertificatesExpiryDateAnnotation, "nothing is half written")
			said := strings.Join(w.events(), "\n")
			require.Contains(t, said, "Warning InvalidConfig "+tt.want)
			for _, secret := range []string{"hunter2", serverToken} {
				require.NotContains(t, said, secret)
			}
		})
	}
}

// incompressible returns bytes of which compression saves none.
func incompressible(size int) string {
	out := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{}).Read(out) // never fails
	return string(out)
}

// Whoever corrects one field is told of the next.
func TestReconcile_EachThingThatIsWrongHasAnEvent(t *testing.T) {
	w := newWorld(t).complete()
	config := w.machine("m", bootstrapv1.OrderInit, withSpec(func(s *bootstrapv1.KThreesConfigSpec) {
		s.Files = []bootstrapv1.File{
			{Path: "/a", Content: "!", Encoding: bootstrapv1.Base64}, {Path: "/b", Content: "!", Encoding: bootstrapv1.Base64},
		}
	}))
	w.mustReconcile(config)
	require.Contains(t, strings.Join(w.events(), "\n"), "Warning InvalidConfig spec.files[0]: the content of file /a isn't base64")
	w.mustReconcile(config)
	require.Empty(t, w.events(), "once is enough")
	w.update(config, func() { config.Spec.Files[0].Content = "YQ==" })
	w.mustReconcile(config)
	require.Contains(t, strings.Join(w.events(), "\n"), "Warning InvalidConfig spec.files[1]: the content of file /b isn't base64")
	require.False(t, w.lockIsHeld())
}

func TestReconcile_IgnitionIsNamedInTheSecret(t *testing.T) {
	w := newWorld(t).complete()
	config := w.machine("m", bootstrapv1.OrderInit, withSpec(func(s *bootstrapv1.KThreesConfigSpec) { s.Format = bootstrapv1.Ignition }))
	w.mustReconcile(config)
	secret := w.secret(config)
	require.Equal(t, "ignition", string(secret.Data["format"]))
	var data struct {
		Ignition struct{ Version string }
	}
	require.NoError(t, json.Unmarshal(secret.Data["value"], &data))
	require.Equal(t, "3.4.0", data.Ignition.Version)
}

func TestReconcile_CompressedCloudConfig(t *testing.T) {
	w := newWorld(t).complete()
	config := w.machine("m", bootstrapv1.OrderInit, withSpec(func(s *bootstrapv1.KThreesConfigSpec) {
		s.Compression = bootstrapv1.CompressionGzip
	}))
	w.mustReconcile(config)
	secret := w.secret(config)
	require.Equal(t, "cloud-config", string(secret.Data["format"]))
	reader, err := gzip.NewReader(bytes.NewReader(secret.Data["value"]))
	require.NoError(t, err)
	plain, err := io.ReadAll(reader)
	require.NoError(t, err)
	require.Equal(t, true, parseUserData(t, plain).config["cluster-init"])
}

func TestReconcile_WarnsOfDataThatAreTooBig(t *testing.T) {
	w := newWorld(t).complete().initialize()
	config := w.machine("m", "worker", withSpec(func(s *bootstrapv1.KThreesConfigSpec) {
		s.Files = []bootstrapv1.File{{Path: "/f", ContentFrom: sourceOf("big", "key")}}
	}))
	env.Create(t, testenv.Secret(w.cluster, "big", map[string]string{"key": incompressible(20 << 10)}, opaque))
	w.mustReconcile(config)
	w.requireData(config)
	const warning = "The bootstrap data have "
	require.Contains(t, strings.Join(w.events(), "\n"), "Warning LargeBootstrapData "+warning)
	for range 2 { // it is said as long as it is true
		require.Contains(t, conditions.GetMessage(config, bootstrapv1.DataSecretAvailableCondition), warning)
		w.mustReconcile(config)
	}
}

func TestSizeWarning(t *testing.T) {
	require.Empty(t, sizeWarning(16384))
	require.Contains(t, sizeWarning(16385), "have 16385 bytes, more than these take as user data: Amazon EC2 (16384). Make spec.files smaller")
	require.Contains(t, sizeWarning(40000), "Amazon EC2 (16384), Hetzner Cloud (32768). ")
}

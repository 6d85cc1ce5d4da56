package controllers

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
	"github.com/capk3s/capk3s/pkg/k3s"
	"github.com/capk3s/capk3s/test/testenv"
)

func TestReconcile_FirstServerFoundsTheCluster(t *testing.T) {
	w := newWorld(t).complete()
	config := w.machine("m", bootstrapv1.OrderInit)
	w.mustReconcile(config)
	data := w.requireData(config)

	require.Equal(t, true, data.config["cluster-init"])
	require.NotContains(t, data.config, "server")
	require.Equal(t, w.fullToken(k3s.ServerUser, serverToken), data.config["token"])
	require.Equal(t, agentToken, data.config["agent-token"])
	require.Equal(t, []any{"10.0.0.1"}, data.config["tls-san"])
	require.Equal(t, true, data.config["disable-cloud-controller"])
	require.NotContains(t, data.raw, "anonymous-auth")
	require.Equal(t, []string{"sh", "/run/cluster-api/k3s/bootstrap.sh", "server", testenv.Version, "/var/lib/rancher/k3s"}, data.run)
	for path, secret := range map[string]string{
		"server-ca": "c-ca", "client-ca": "c-cca", "etcd/server-ca": "c-etcd", "etcd/peer-ca": "c-etcd-peer", "request-header-ca": "c-proxy",
	} {
		ca := w.readSecret(secret)
		require.Equal(t, string(ca.Data["tls.crt"]), data.files["/var/lib/rancher/k3s/server/tls/"+path+".crt"])
		require.Equal(t, string(ca.Data["tls.key"]), data.files["/var/lib/rancher/k3s/server/tls/"+path+".key"])
	}
	require.Equal(t, string(w.readSecret("c-sa").Data["tls.key"]), data.files["/var/lib/rancher/k3s/server/tls/service.key"])
	require.Equal(t, "server: \"https://10.0.0.1:6443\"\n", data.files["/run/cluster-api/k3s/90-join.yaml"])

	expiry, err := time.Parse(time.RFC3339, config.Annotations[clusterv1.MachineCertificatesExpiryDateAnnotation])
	require.NoError(t, err)
	require.WithinDuration(t, time.Now().AddDate(0, 0, 365), expiry, time.Minute)
	require.Contains(t, strings.Join(w.events(), "\n"), "Normal DataSecretCreated Secret m holds the bootstrap data of a first server")
}

func TestReconcile_OtherServersJoin(t *testing.T) {
	w := newWorld(t).complete().initialize()
	config := w.machine("m", bootstrapv1.OrderJoin)
	w.mustReconcile(config)
	data := w.requireData(config)

	require.Equal(t, "https://10.0.0.1:6443", data.config["server"])
	require.NotContains(t, data.config, "cluster-init")
	require.Equal(t, w.fullToken(k3s.ServerUser, serverToken), data.config["token"])
	require.Equal(t, agentToken, data.config["agent-token"])
	require.NotContains(t, data.all(), "PRIVATE KEY")
	require.Contains(t, config.Annotations, clusterv1.MachineCertificatesExpiryDateAnnotation)
}

func TestReconcile_WorkersJoinWithoutTheServersSecrets(t *testing.T) {
	w := newWorld(t).complete().initialize()
	config := w.machine("m", "worker", func(_ *clusterv1.Machine, config *bootstrapv1.KThreesConfig) {
		config.Spec.ServerConfig.TLSSan = []string{"ignored"}
		config.Spec.AgentConfig.NodeTaints = []string{"mine:NoExecute"}
	})
	w.mustReconcile(config)
	data := w.requireData(config)

	require.Equal(t, map[string]any{
		"server":     "https://10.0.0.1:6443",
		"token":      w.fullToken(k3s.NodeUser, agentToken),
		"node-taint": []any{"mine:NoExecute", "node.cluster.x-k8s.io/uninitialized:NoSchedule"},
	}, data.config)
	require.Equal(t, "agent", data.run[2])
	require.NotContains(t, data.all(), serverToken)
	require.NotContains(t, data.all(), "PRIVATE KEY")
	require.NotContains(t, config.Annotations, clusterv1.MachineCertificatesExpiryDateAnnotation)
}

func TestReconcile_WorkersOfAClusterWithoutAgentTokenUseTheServers(t *testing.T) {
	w := newWorld(t).initialize()
	w.createCAs()
	env.Create(t, testenv.Secret(w.cluster, "c-token", map[string]string{"value": serverToken}))
	config := w.machine("m", "worker")
	w.mustReconcile(config)
	require.Equal(t, w.fullToken(k3s.NodeUser, serverToken), w.requireData(config).config["token"])

	server := w.machine("s", bootstrapv1.OrderJoin)
	w.mustReconcile(server)
	require.NotContains(t, w.requireData(server).config, "agent-token")
}

func TestReconcile_MachinePoolJoinsWithItsVersion(t *testing.T) {
	w := newWorld(t).complete().initialize()
	pool := &clusterv1.MachinePool{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.cluster.Namespace, Name: "p", Labels: map[string]string{clusterv1.ClusterNameLabel: "c"}},
		Spec: clusterv1.MachinePoolSpec{
			ClusterName: "c",
			Template: clusterv1.MachineTemplateSpec{Spec: testenv.Machine(w.cluster, "p", func(m *clusterv1.Machine) {
				m.Spec.Version = ""
			}).Spec},
		},
	}
	env.Create(t, pool)
	config := &bootstrapv1.KThreesConfig{ObjectMeta: metav1.ObjectMeta{
		Namespace: w.cluster.Namespace, Name: "p", Labels: map[string]string{clusterv1.ClusterNameLabel: "c"},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(pool, clusterv1.GroupVersion.WithKind("MachinePool"))},
	}}
	env.Create(t, config)
	w.mustReconcile(config)
	w.requireWaiting(config, bootstrapv1.WaitingForVersionReason, "Waiting for spec.template.spec.version of MachinePool p")
	w.update(pool, func() { pool.Spec.Template.Spec.Version = "v1.35.1+k3s2" })
	w.mustReconcile(config)
	require.Equal(t, "v1.35.1+k3s2", w.requireData(config).run[3])
}

func TestReconcile_SecretIsWhatTheContractAsksFor(t *testing.T) {
	w := newWorld(t).complete().initialize()
	config := w.machine("m", "worker")
	w.mustReconcile(config)
	secret := w.secret(config)
	require.Equal(t, clusterv1.ClusterSecretType, secret.Type)
	require.Equal(t, "c", secret.Labels[clusterv1.ClusterNameLabel])
	require.Equal(t, "cloud-config", string(secret.Data["format"]))
	require.True(t, metav1.IsControlledBy(secret, config))
	require.Equal(t, "bootstrap.cluster.x-k8s.io/v1beta3", secret.OwnerReferences[0].APIVersion)
	require.Len(t, secret.Data, 2)
}

func TestReconcile_IPv6Endpoint(t *testing.T) {
	w := newWorld(t).complete().initialize()
	w.update(w.cluster, func() { w.cluster.Spec.ControlPlaneEndpoint.Host = "fd12::250" })
	config := w.machine("m", bootstrapv1.OrderJoin)
	w.mustReconcile(config)
	data := w.requireData(config)
	require.Equal(t, "https://[fd12::250]:6443", data.config["server"])
	require.Equal(t, []any{"fd12::250"}, data.config["tls-san"])
}

func TestReconcile_FilesAndCommandsArrive(t *testing.T) {
	w := newWorld(t).complete().initialize()
	env.Create(t, testenv.Secret(w.cluster, "content", map[string]string{"key": "{{ v1.region }} from a Secret"}, opaque))
	config := w.machine("m", "worker", func(_ *clusterv1.Machine, config *bootstrapv1.KThreesConfig) {
		config.Spec.Files = []bootstrapv1.File{
			{Path: "/inline", Content: "{{range .items}}"},
			{Path: "/secret", ContentFrom: bootstrapv1.FileSource{Secret: bootstrapv1.SecretFileSource{Name: "content", Key: "key"}}},
		}
		config.Spec.PreK3sCommands = []string{"echo before"}
		config.Spec.PostK3sCommands = []string{"echo after"}
	})
	w.mustReconcile(config)
	data := w.requireData(config)
	require.Equal(t, "{{range .items}}", data.files["/inline"])
	require.Equal(t, "{{ v1.region }} from a Secret", data.files["/secret"])
	require.Equal(t, "echo before", data.files["/run/cluster-api/k3s/preK3sCommands/000"])
	require.Equal(t, "echo after", data.files["/run/cluster-api/k3s/postK3sCommands/000"])
}

// userDataLimit is the smallest limit of the clouds that people use.
const userDataLimit = 16384

func TestReconcile_DataFitEverywhere(t *testing.T) {
	w := newWorld(t).complete()
	for _, role := range []string{"first-server", "joining-server", "worker"} {
		require.LessOrEqual(t, userDataSize(w, role, bootstrapv1.KThreesConfigSpec{}), userDataLimit, role)
	}
}

// userDataSize returns the bytes of the bootstrap data of a role with that spec. The first server must be first.
func userDataSize(w *world, role string, spec bootstrapv1.KThreesConfigSpec) int {
	order := map[string]string{
		"first-server": bootstrapv1.OrderInit, "joining-server": bootstrapv1.OrderJoin, "worker": "worker",
	}[role]
	if role != "first-server" {
		w.initialize()
	}
	config := w.machine(role, order, withSpec(func(s *bootstrapv1.KThreesConfigSpec) { *s = spec }))
	w.mustReconcile(config)
	return len(w.secret(config).Data["value"])
}

func (w *world) readSecret(name string) *corev1.Secret {
	w.t.Helper()
	secret := &corev1.Secret{}
	require.NoError(w.t, env.Client.Get(ctx, client.ObjectKey{Namespace: w.cluster.Namespace, Name: name}, secret))
	return secret
}

func (w *world) fullToken(user, password string) string {
	w.t.Helper()
	full, err := k3s.FullToken(w.readSecret("c-ca").Data["tls.crt"], user, password)
	require.NoError(w.t, err)
	return full
}

package k3s

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
)

var testEndpoint = Endpoint{Host: "cp.example.com", Port: 6443}

func TestServerConfig_FirstServer(t *testing.T) {
	c, err := ServerConfig(Server{Init: true, Endpoint: testEndpoint, Token: "t", AgentToken: "a"}, &bootstrapv1.KThreesConfigSpec{})
	require.NoError(t, err)
	require.Equal(t, Config{
		"cluster-init":             true,
		"token":                    "t",
		"agent-token":              "a",
		"tls-san":                  []string{"cp.example.com"},
		"disable-cloud-controller": true,
	}, c)
}

func TestServerConfig_JoiningServer(t *testing.T) {
	spec := &bootstrapv1.KThreesConfigSpec{
		ServerConfig: bootstrapv1.ServerConfig{
			TLSSan:                 []string{"other", "cp.example.com"},
			HTTPSListenPort:        7443,
			DisableCloudController: ptr.To(false),
			FlannelIPv6Masq:        ptr.To(true),
			KubeAPIServerArg:       []string{"v=4"},
			ExtraConfig: extra(map[string]string{
				"pause-image": `"server's"`, "service-node-port-range": `"30000-31000"`, "etcd-snapshot-retention": `"7"`, "unknown-flag": `1.50`,
			}),
		},
		AgentConfig: bootstrapv1.AgentConfig{
			NodeName:    "n1",
			ExtraConfig: extra(map[string]string{"pause-image": `"agent's"`, "node-ip": `"10.0.0.1"`, "selinux": `true`, "snapshotter": "null"}),
		},
	}
	c, err := ServerConfig(Server{Endpoint: Endpoint{Host: "fd12::250", Port: 443}, Token: "t"}, spec)
	require.NoError(t, err)
	require.Equal(t, Config{
		"server":                   "https://[fd12::250]:443",
		"token":                    "t",
		"tls-san":                  []string{"other", "cp.example.com", "fd12::250"},
		"disable-cloud-controller": false,
		"flannel-ipv6-masq":        true,
		"https-listen-port":        int64(7443),
		"kube-apiserver-arg":       []string{"v=4"},
		"pause-image":              "server's",
		"service-node-port-range":  "30000-31000",
		"etcd-snapshot-retention":  int64(7),
		"unknown-flag":             "1.50",
		"node-name":                "n1",
		"node-ip":                  []string{"10.0.0.1"},
		"selinux":                  true,
	}, c)
	require.Equal(t, []string{"other", "cp.example.com"}, spec.ServerConfig.TLSSan, "the spec stays as it was")
}

func TestAgentConfig_HoldsOnlyWhatAnAgentKnows(t *testing.T) {
	c, err := AgentConfig(Agent{Endpoint: testEndpoint, Token: "t", Taints: []string{"new:NoSchedule"}}, everySetting())
	require.NoError(t, err)
	for key := range c {
		_, known := AgentKey(key)
		require.True(t, known, key)
	}
	require.Equal(t, []string{"mine:NoExecute", "new:NoSchedule"}, c["node-taint"])
	require.Equal(t, "https://cp.example.com:6443", c["server"])
	require.Equal(t, "t", c["token"])
}

func TestServerConfig_HoldsOnlyWhatAServerKnows(t *testing.T) {
	c, err := ServerConfig(Server{Endpoint: testEndpoint, Token: "t", AgentToken: "a"}, everySetting())
	require.NoError(t, err)
	for key := range c {
		_, known := ServerKey(key)
		require.True(t, known, key)
	}
}

func TestExtraConfig_RefusesWithAWordOnWhatToDo(t *testing.T) {
	tests := map[string]struct {
		server, agent map[string]string
		want          string
	}{
		"operator's":             {server: map[string]string{"token": `"secret"`}, want: "serverConfig.extraConfig: token is decided by the operator; remove it"},
		"operator's on an agent": {agent: map[string]string{"cluster-init": `true`}, want: "agentConfig.extraConfig: cluster-init is decided by the operator; remove it"},
		"short form":             {server: map[string]string{"t": `"secret"`}, want: "serverConfig.extraConfig: write token in place of its short form t"},
		"has a field":            {server: map[string]string{"tls-san": `"a"`}, want: "serverConfig.extraConfig: tls-san has a field of its own: use serverConfig.tlsSan"},
		"has a field, on agent":  {agent: map[string]string{"node-label": `"a"`}, want: "agentConfig.extraConfig: node-label has a field of its own: use agentConfig.nodeLabels"},
		"server's on an agent":   {agent: map[string]string{"etcd-s3": `true`}, want: "agentConfig.extraConfig: an agent doesn't know etcd-s3; set it in serverConfig.extraConfig"},
		"agent's on a server":    {server: map[string]string{"disable-apiserver-lb": `true`}, want: "serverConfig.extraConfig: a server doesn't know disable-apiserver-lb"},
		"appending form":         {server: map[string]string{"token+": `"secret"`}, want: `serverConfig.extraConfig: "token+" isn't a key of config.yaml: write it in lower case, without leading dashes or a plus sign`},
		"flag form":              {agent: map[string]string{"--token": `"secret"`}, want: `agentConfig.extraConfig: "--token" isn't a key of config.yaml: write it in lower case, without leading dashes or a plus sign`},
		"not a bool":             {server: map[string]string{"etcd-s3": `"perhaps"`}, want: "serverConfig.extraConfig: the value of etcd-s3 must be true or false"},
		"not a number":           {server: map[string]string{"etcd-snapshot-retention": `1.5`}, want: "serverConfig.extraConfig: the value of etcd-snapshot-retention must be a whole number"},
		"not a duration":         {server: map[string]string{"etcd-s3-timeout": `5`}, want: "serverConfig.extraConfig: the value of etcd-s3-timeout must be a duration, for example 5m"},
		"list for a string":      {server: map[string]string{"pause-image": `["a"]`}, want: "serverConfig.extraConfig: the value of pause-image must be of type string, not a list"},
		"object":                 {server: map[string]string{"pause-image": `{"a":1}`}, want: "serverConfig.extraConfig: the value of pause-image must be a string, a number, true, false or a list of these"},
		"list of lists":          {server: map[string]string{"node-ip": `[["a"]]`}, want: "serverConfig.extraConfig: the value of node-ip must be a string, a number, true, false or a list of these"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			spec := &bootstrapv1.KThreesConfigSpec{
				ServerConfig: bootstrapv1.ServerConfig{ExtraConfig: extra(tt.server)},
				AgentConfig:  bootstrapv1.AgentConfig{ExtraConfig: extra(tt.agent)},
			}
			_, err := ServerConfig(Server{Endpoint: testEndpoint}, spec)
			require.EqualError(t, err, tt.want)
			if tt.agent != nil {
				_, err = AgentConfig(Agent{Endpoint: testEndpoint}, spec)
				require.EqualError(t, err, tt.want)
			}
		})
	}
}

// A server skips what it doesn't know, an agent doesn't start with it.
func TestExtraConfig_RefusesWhatWouldKeepAnAgentFromStarting(t *testing.T) {
	spec := &bootstrapv1.KThreesConfigSpec{AgentConfig: bootstrapv1.AgentConfig{ExtraConfig: extra(map[string]string{"snapshoter": `"native"`})}}
	_, err := AgentConfig(Agent{Endpoint: testEndpoint, Token: "t"}, spec)
	require.ErrorContains(t, err, "agentConfig.extraConfig: an agent that doesn't know snapshoter doesn't start: correct the name")
	c, err := ServerConfig(Server{Endpoint: testEndpoint, Token: "t"}, spec)
	require.NoError(t, err)
	require.Equal(t, "native", c["snapshoter"])
}

// Values that YAML takes for something else unless they are quoted.
func TestConfigYAML_KeepsStrings(t *testing.T) {
	for _, value := range []string{
		"0123", "1_000", "0x1f", "on", "y", "~", "null", "12345678901234567890123456789012", "abc #d", "1:30", " a ", "a: b",
		"- a", "", "'", `"`, `\`, "é🙂", "a\nb\n", "\t", "{{ ds.meta_data.hostname }}", strings.Repeat("long text ", 40),
	} {
		encoded, err := Config{"s": value, "l": []string{value}, "b": true, "i": int64(6443)}.YAML()
		require.NoError(t, err)
		var decoded map[string]any
		require.NoError(t, yaml.Unmarshal(encoded, &decoded))
		require.Equal(t, map[string]any{"s": value, "l": []any{value}, "b": true, "i": float64(6443)}, decoded, string(encoded))
	}
}

func TestConfig_DataDir(t *testing.T) {
	require.Equal(t, DefaultDataDir, Config{}.DataDir())
	require.Equal(t, "/data", Config{"data-dir": "/data"}.DataDir())
}

// What extraConfig could hold before there was a field for it, it can still hold; but not a second opinion.
func TestExtraConfig_AndAFieldOfItsOwnDontMix(t *testing.T) {
	spec := &bootstrapv1.KThreesConfigSpec{
		ServerConfig: bootstrapv1.ServerConfig{ExtraConfig: extra(map[string]string{"etcd-s3-access-key": `"a"`})},
		AgentConfig:  bootstrapv1.AgentConfig{ExtraConfig: extra(map[string]string{"with-node-id": `"true"`})},
	}
	server, agent := Server{Endpoint: testEndpoint, Token: "t"}, Agent{Endpoint: testEndpoint, Token: "t"}
	c, err := ServerConfig(server, spec)
	require.NoError(t, err)
	require.Equal(t, "a", c["etcd-s3-access-key"])
	require.Equal(t, true, c["with-node-id"])

	server.Secret = Config{"etcd-s3-access-key": "b"}
	_, err = ServerConfig(server, spec)
	require.EqualError(t, err, "serverConfig.extraConfig: etcd-s3-access-key is set by a field of its own already: remove one of the two")
	spec.AgentConfig.WithNodeID = ptr.To(true)
	_, err = AgentConfig(agent, spec)
	require.EqualError(t, err, "agentConfig.extraConfig: with-node-id is set by a field of its own already: remove one of the two")
}

func TestServerConfig_ExternalDatastoreNeedsNoOtherServer(t *testing.T) {
	spec := &bootstrapv1.KThreesConfigSpec{ServerConfig: bootstrapv1.ServerConfig{
		Datastore: bootstrapv1.DatastoreSpec{EndpointFrom: bootstrapv1.FileSource{Secret: bootstrapv1.SecretFileSource{Name: "s", Key: "k"}}},
	}}
	inExtra := &bootstrapv1.KThreesConfigSpec{ServerConfig: bootstrapv1.ServerConfig{
		ExtraConfig: extra(map[string]string{"datastore-endpoint": `"postgres://u:p@db/k3s"`}),
	}}
	for _, first := range []bool{true, false} {
		c, err := ServerConfig(Server{Init: first, Endpoint: testEndpoint, Token: "t"}, inExtra)
		require.NoError(t, err)
		require.Equal(t, "postgres://u:p@db/k3s", c["datastore-endpoint"])
		require.NotContains(t, c, "cluster-init")
		require.NotContains(t, c, "server")

		c, err = ServerConfig(Server{
			Init: first, Endpoint: testEndpoint, Token: "t", Secret: Config{"datastore-endpoint": "postgres://u:p@db/k3s"},
		}, spec)
		require.NoError(t, err)
		require.Equal(t, "postgres://u:p@db/k3s", c["datastore-endpoint"])
		require.NotContains(t, c, "cluster-init")
		require.NotContains(t, c, "server")
		require.Equal(t, "t", c["token"])
	}
}

func TestAgentConfig_CloudSettingsAreTheKubelets(t *testing.T) {
	spec := &bootstrapv1.KThreesConfigSpec{AgentConfig: bootstrapv1.AgentConfig{
		KubeletArgs: []string{"v=2"}, ProviderID: "aws:///{{ v1.instance_id }}", CloudProvider: "external",
	}}
	c, err := AgentConfig(Agent{Endpoint: testEndpoint, Token: "t"}, spec)
	require.NoError(t, err)
	require.Equal(t, []string{"v=2", "provider-id=aws:///{{ v1.instance_id }}", "cloud-provider=external"}, c["kubelet-arg"])
	require.Equal(t, []string{"v=2"}, spec.AgentConfig.KubeletArgs, "the spec stays as it was")
}

func TestProfileCIS(t *testing.T) {
	spec := &bootstrapv1.KThreesConfigSpec{Profile: bootstrapv1.ProfileCIS}
	spec.AgentConfig.DataDir = "/data"
	spec.ServerConfig.KubeAPIServerArg = []string{"audit-log-maxage=90", "profiling=false"}
	server, err := ServerConfig(Server{Init: true, Endpoint: testEndpoint, Token: "t"}, spec)
	require.NoError(t, err)
	require.Equal(t, true, server["secrets-encryption"])
	require.Equal(t, true, server["protect-kernel-defaults"])
	require.Equal(t, []string{
		"audit-log-maxage=90", "profiling=false", "enable-admission-plugins=NodeRestriction,EventRateLimit",
		"admission-control-config-file=/data/server/psa.yaml", "audit-log-path=/data/server/logs/audit.log",
		"audit-policy-file=/data/server/audit.yaml", "audit-log-maxbackup=10", "audit-log-maxsize=100",
		"service-account-extend-token-expiration=false",
	}, server["kube-apiserver-arg"])
	require.Equal(t, []string{"terminated-pod-gc-threshold=100"}, server["kube-controller-manager-arg"])

	agent, err := AgentConfig(Agent{Endpoint: testEndpoint, Token: "t"}, spec)
	require.NoError(t, err)
	require.Equal(t, server["kubelet-arg"], agent["kubelet-arg"])
	require.Contains(t, agent["kubelet-arg"], "streaming-connection-idle-timeout=5m")
	for key := range agent {
		_, known := AgentKey(key)
		require.True(t, known, key)
	}
}

func TestProfileCIS_TheSpecIsStronger(t *testing.T) {
	spec := &bootstrapv1.KThreesConfigSpec{Profile: bootstrapv1.ProfileCIS}
	spec.ServerConfig.SecretsEncryption = ptr.To(false)
	spec.AgentConfig.ProtectKernelDefaults = ptr.To(false)
	spec.AgentConfig.KubeletArgs = []string{"streaming-connection-idle-timeout=1h"}
	c, err := ServerConfig(Server{Endpoint: testEndpoint, Token: "t"}, spec)
	require.NoError(t, err)
	require.Equal(t, false, c["secrets-encryption"])
	require.Equal(t, false, c["protect-kernel-defaults"])
	require.NotContains(t, c["kubelet-arg"], "streaming-connection-idle-timeout=5m")
}

func everySetting() *bootstrapv1.KThreesConfigSpec {
	yes, list := ptr.To(true), []string{"mine:NoExecute"}
	spec := &bootstrapv1.KThreesConfigSpec{
		ServerConfig: bootstrapv1.ServerConfig{
			KubeAPIServerArg: list, KubeControllerManagerArgs: list, KubeSchedulerArgs: list, EtcdArgs: list, TLSSan: list,
			BindAddress: "::", HTTPSListenPort: 1, AdvertiseAddress: "::", AdvertisePort: 1, ClusterCidr: list, ServiceCidr: list,
			ClusterDNS: list, ClusterDomain: "d", FlannelBackend: "none", FlannelIPv6Masq: yes, FlannelExternalIP: yes,
			EgressSelectorMode: "pod", SecretsEncryption: yes, SecretsEncryptionProvider: "aescbc", EmbeddedRegistry: yes,
			SupervisorMetrics: yes, DisableComponents: list, DisableCloudController: yes, DisableNetworkPolicy: yes,
			DisableHelmController: yes, DisableKubeProxy: yes, SystemDefaultRegistry: "r", ServiceNodePortRange: "1-2",
			WriteKubeconfigMode: "0644", EtcdExposeMetrics: yes, Datastore: bootstrapv1.DatastoreSpec{Endpoint: "e"},
			EtcdSnapshots: bootstrapv1.EtcdSnapshotsSpec{
				Disabled: yes, Schedule: "@daily", Retention: 1, Name: "n", Dir: "/d", Compress: yes,
				S3: bootstrapv1.SnapshotS3Spec{
					Bucket: "b", Endpoint: "e", Region: "r", Folder: "f", Retention: 1, BucketLookupType: "dns", Proxy: "p",
					Insecure: yes, SkipSSLVerify: yes,
				},
			},
			ExtraConfig: extra(map[string]string{"kine-tls": "true"}),
		},
		AgentConfig: bootstrapv1.AgentConfig{
			NodeName: "n", NodeLabels: list, NodeTaints: list, KubeletArgs: list, KubeProxyArgs: list, PrivateRegistry: "/r",
			DataDir: "/d", NodeIPs: list, NodeExternalIPs: list, WithNodeID: yes, ProviderID: "p", CloudProvider: "external",
			FlannelIface: "eth1", SELinux: yes, ProtectKernelDefaults: yes,
			ExtraConfig: extra(map[string]string{"debug": "true"}),
		},
	}
	return spec
}

func extra(values map[string]string) bootstrapv1.ExtraConfig {
	config := bootstrapv1.ExtraConfig{}
	for key, value := range values {
		config[key] = apiextensionsv1.JSON{Raw: []byte(value)}
	}
	return config
}

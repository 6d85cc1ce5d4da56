package validation

import (
	"context"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
)

type configCase struct {
	name   string
	change func(*bootstrapv1.KThreesConfigSpec)
	// want has a field relative to the configuration of K3s.
	want refusal
}

// configCases hold for the configuration of K3s wherever it is.
var configCases = []configCase{
	{"file with content", withFile(bootstrapv1.File{Path: "/etc/a", Content: "x"}), refusal{}},
	{"file with content from a Secret", withFile(bootstrapv1.File{Path: "/etc/a", ContentFrom: fromSecret}), refusal{}},
	{
		"file with content twice", withFile(bootstrapv1.File{Path: "/etc/a", Content: "x", ContentFrom: fromSecret}),
		refusal{"files[]", "either content or contentFrom"},
	},
	{"inline gzip+base64", withFile(bootstrapv1.File{Path: "/etc/a", Content: "eA==", Encoding: bootstrapv1.GzipBase64}), refusal{}},
	{"gzip from a Secret", withFile(bootstrapv1.File{Path: "/etc/a", ContentFrom: fromSecret, Encoding: bootstrapv1.Gzip}), refusal{}},
	{
		"inline raw gzip", withFile(bootstrapv1.File{Path: "/etc/a", Content: "x", Encoding: bootstrapv1.Gzip}),
		refusal{"files[]", "use encoding gzip+base64"},
	},
	{
		"unknown encoding", withFile(bootstrapv1.File{Path: "/etc/a", Content: "x", Encoding: "zip"}),
		refusal{"files[].encoding", "supported values"},
	},
	{"relative path", withFile(bootstrapv1.File{Path: "etc/a"}), refusal{"files[].path", "must be absolute"}},
	{"folder", withFile(bootstrapv1.File{Path: "/etc/"}), refusal{"files[].path", "must be that of a file"}},
	{"path with parent", withFile(bootstrapv1.File{Path: "/etc/../a"}), refusal{"files[].path", "must be that of a file"}},
	{"path that ends in parent", withFile(bootstrapv1.File{Path: "/etc/.."}), refusal{"files[].path", "must be that of a file"}},
	{"double slash", withFile(bootstrapv1.File{Path: "//etc/a"}), refusal{"files[].path", "must be that of a file"}},
	{"dots within a name", withFile(bootstrapv1.File{Path: "/etc/..a./b.."}), refusal{}},
	{"drop-in", withFile(bootstrapv1.File{Path: "/etc/rancher/k3s/config.yaml.d/a.yaml"}), refusal{}},
	{
		"config.yaml", withFile(bootstrapv1.File{Path: "/etc/rancher/k3s/config.yaml"}),
		refusal{"files[].path", "the operator writes this file"},
	},
	{"two files", withFile(bootstrapv1.File{Path: "/etc/a"}, bootstrapv1.File{Path: "/etc/b"}), refusal{}},
	{
		"two files with one path", withFile(bootstrapv1.File{Path: "/etc/a"}, bootstrapv1.File{Path: "/etc/a"}),
		refusal{"files[]", "Duplicate value"},
	},

	{"node labels", agent(func(a *bootstrapv1.AgentConfig) { a.NodeLabels = []string{"a=b", "kubernetes.io/os=linux"} }), refusal{}},
	{
		"node role label", agent(func(a *bootstrapv1.AgentConfig) { a.NodeLabels = []string{"a=b", "node-role.kubernetes.io/x="} }),
		refusal{"agentConfig.nodeLabels", "may not give itself a role"},
	},

	{"bind address", server(func(s *bootstrapv1.ServerConfig) { s.BindAddress = "::" }), refusal{}},
	{
		"bind address that is a name", server(func(s *bootstrapv1.ServerConfig) { s.BindAddress = "localhost" }),
		refusal{"serverConfig.bindAddress", "must be an IP address"},
	},
	{"advertise address", server(func(s *bootstrapv1.ServerConfig) { s.AdvertiseAddress = "10.0.0.1" }), refusal{}},
	{
		"advertise address of the instance", server(func(s *bootstrapv1.ServerConfig) { s.AdvertiseAddress = "{{ ds.meta_data.local_ipv4 }}" }),
		refusal{},
	},
	{
		"advertise address that is a name", server(func(s *bootstrapv1.ServerConfig) { s.AdvertiseAddress = "host" }),
		refusal{"serverConfig.advertiseAddress", "must be an IP address"},
	},
	{
		"port out of range", server(func(s *bootstrapv1.ServerConfig) { s.HTTPSListenPort = 65536 }),
		refusal{"serverConfig.httpsListenPort", "less than or equal to 65535"},
	},

	{"one family", cidrs([]string{"10.1.0.0/16"}, []string{"10.2.0.0/16"}), refusal{}},
	{"one family, IPv6", cidrs([]string{"fd00:1::/56"}, []string{"fd00:2::/112"}), refusal{}},
	{"two families", cidrs([]string{"10.1.0.0/16", "fd00:1::/56"}, []string{"10.2.0.0/16", "fd00:2::/112"}), refusal{}},
	{"pods without prefix", cidrs([]string{"10.1.0.0"}, nil), refusal{"serverConfig.clusterCidr", "must be a CIDR"}},
	{"services with bad prefix", cidrs(nil, []string{"10.2.0.0/33"}), refusal{"serverConfig.serviceCidr", "must be a CIDR"}},
	{
		"pods twice of one family", cidrs([]string{"10.1.0.0/16", "10.3.0.0/16"}, []string{"10.2.0.0/16", "fd00:2::/112"}),
		refusal{"serverConfig.clusterCidr", "different IP families"},
	},
	{
		"services twice of one family", cidrs([]string{"10.1.0.0/16", "fd00:1::/56"}, []string{"10.2.0.0/16", "10.3.0.0/16"}),
		refusal{"serverConfig.serviceCidr", "different IP families"},
	},
	{"one family and two", cidrs([]string{"10.1.0.0/16", "fd00:1::/56"}, []string{"10.2.0.0/16"}), refusal{"serverConfig", "same IP families"}},
	{"two families and a default", cidrs([]string{"10.1.0.0/16", "fd00:1::/56"}, nil), refusal{"serverConfig", "same IP families"}},
	{
		"two families in another order", cidrs([]string{"10.1.0.0/16", "fd00:1::/56"}, []string{"fd00:2::/112", "10.2.0.0/16"}),
		refusal{"serverConfig", "same IP families"},
	},
	{"services within pods", cidrs([]string{"10.0.0.0/8"}, []string{"10.2.0.0/16"}), refusal{"serverConfig", "must not overlap"}},
	{"pods over the default of services", cidrs([]string{"10.43.0.0/17"}, nil), refusal{"serverConfig", "must not overlap"}},
	{"services over the default of pods", cidrs(nil, []string{"10.42.1.0/24"}), refusal{"serverConfig", "must not overlap"}},

	{"DNS within services", dns([]string{"10.2.0.0/16"}, "10.2.0.10"), refusal{}},
	{"DNS within the default of services", dns(nil, "10.43.0.53"), refusal{}},
	{"DNS outside of services", dns([]string{"10.2.0.0/16"}, "10.43.0.10"), refusal{"serverConfig", "clusterDNS must be within serviceCidr"}},
	{"DNS that is a name", dns(nil, "dns"), refusal{"serverConfig.clusterDNS", "must be an IP address"}},

	{"label without a value", labels("a="), refusal{}},
	{"labels in one entry", labels("a=b,example.com/c=d"), refusal{}},
	{"label of the instance", labels("region={{ v1.region }}"), refusal{}},
	{"label without an equals sign", labels("a"), refusal{"agentConfig.nodeLabels", "must be key=value"}},
	{"label with a space", labels("a=b c"), refusal{"agentConfig.nodeLabels", "must be key=value"}},
	{"label of the topology", labels("topology.kubernetes.io/zone=a", "node.kubernetes.io/instance-type=b", "example.com/a=b"), refusal{}},
	{"label of another component", labels("app.kubernetes.io/name=a"), refusal{"agentConfig.nodeLabels", "doesn't start with labels"}},
	{"label that restricts", labels("node-restriction.kubernetes.io/a=b"), refusal{"agentConfig.nodeLabels", "doesn't start with labels"}},
	{"taint", taints("a=b:NoSchedule", "example.com/a:NoExecute", "a=:PreferNoSchedule"), refusal{}},
	{"taints in one entry", taints("a=b:NoSchedule,c:NoExecute"), refusal{}},
	{"taint without an effect", taints("a=b"), refusal{"agentConfig.nodeTaints", "with the effect NoSchedule"}},
	{"taint with another effect", taints("a=b:Never"), refusal{"agentConfig.nodeTaints", "with the effect NoSchedule"}},

	{"data dir", agent(func(a *bootstrapv1.AgentConfig) { a.DataDir = "/mnt/k3s" }), refusal{}},
	{
		"data dir that is relative", agent(func(a *bootstrapv1.AgentConfig) { a.DataDir = "mnt/k3s" }),
		refusal{"agentConfig.dataDir", "must be an absolute path"},
	},
	{"addresses", agent(func(a *bootstrapv1.AgentConfig) { a.NodeIPs = []string{"10.0.0.1", "{{ ds.meta_data.ipv6 }}"} }), refusal{}},
	{
		"address that is a name", agent(func(a *bootstrapv1.AgentConfig) { a.NodeIPs = []string{"host"} }),
		refusal{"agentConfig.nodeIPs", "must be an IP address"},
	},
	{
		"external address that is a name", agent(func(a *bootstrapv1.AgentConfig) { a.NodeExternalIPs = []string{"host"} }),
		refusal{"agentConfig.nodeExternalIPs", "must be an IP address"},
	},
	{"provider id", agent(func(a *bootstrapv1.AgentConfig) { a.ProviderID, a.CloudProvider = "a:///b", "external" }), refusal{}},
	{
		"provider id twice", agent(func(a *bootstrapv1.AgentConfig) { a.ProviderID, a.KubeletArgs = "a:///b", []string{"provider-id=c"} }),
		refusal{"agentConfig", "either providerID or provider-id"},
	},
	{
		"cloud provider twice", agent(func(a *bootstrapv1.AgentConfig) {
			a.CloudProvider, a.KubeletArgs = "external", []string{"cloud-provider=aws"}
		}),
		refusal{"agentConfig", "either cloudProvider or cloud-provider"},
	},
	{
		"kubelet configuration", agent(func(a *bootstrapv1.AgentConfig) {
			a.KubeletConfiguration = apiextensionsv1.JSON{Raw: []byte(`{"maxPods":200}`)}
		}), refusal{},
	},
	{
		"kubelet configuration that is text", agent(func(a *bootstrapv1.AgentConfig) {
			a.KubeletConfiguration = apiextensionsv1.JSON{Raw: []byte(`"maxPods: 200"`)}
		}), refusal{"agentConfig.kubeletConfiguration", "must be of type object"},
	},
	{"registries", agent(func(a *bootstrapv1.AgentConfig) { a.Registries.ContentFrom = fromSecret }), refusal{}},
	{
		"registries twice", agent(func(a *bootstrapv1.AgentConfig) {
			a.Registries = bootstrapv1.RegistriesSpec{Content: "mirrors: {}", ContentFrom: fromSecret}
		}), refusal{"agentConfig.registries", "either content or contentFrom"},
	},

	{"snapshots to S3", server(func(s *bootstrapv1.ServerConfig) {
		s.EtcdSnapshots.S3 = bootstrapv1.SnapshotS3Spec{Bucket: "b", Secret: bootstrapv1.SecretReference{Name: "s"}}
	}), refusal{}},
	{"snapshots to no bucket", server(func(s *bootstrapv1.ServerConfig) {
		s.EtcdSnapshots.S3 = bootstrapv1.SnapshotS3Spec{Region: "r"}
	}), refusal{"serverConfig.etcdSnapshots.s3.bucket", "Required value"}},

	{"proxy", func(s *bootstrapv1.KThreesConfigSpec) { s.Proxy = bootstrapv1.ProxySpec{HTTPSProxy: "http://p"} }, refusal{}},
	{"install from a mirror", install(bootstrapv1.InstallSpec{
		ScriptURL: "https://m/install.sh", ArtifactURL: "https://m/k3s/download", CAFile: "/etc/ssl/m.pem",
		Environment: map[string]bootstrapv1.EnvironmentValue{"INSTALL_K3S_SKIP_SELINUX_RPM": "true"},
	}), refusal{}},
	{
		"install without a network", install(bootstrapv1.InstallSpec{AirGapped: ptr.To(true), ScriptPath: "/root/install.sh"}), refusal{},
	},
	{
		"two install scripts", install(bootstrapv1.InstallSpec{ScriptURL: "https://m/install.sh", ScriptPath: "/root/install.sh"}),
		refusal{"install", "either scriptURL or scriptPath"},
	},
	{
		"install without a network from a mirror",
		install(bootstrapv1.InstallSpec{AirGapped: ptr.To(true), ArtifactURL: "https://m/download"}),
		refusal{"install", "airGapped downloads nothing"},
	},
	{"mirror", install(bootstrapv1.InstallSpec{ArtifactURL: "https://m/k3s"}), refusal{"install.artifactURL", "must end with /download"}},
	{
		"setting in the environment",
		install(bootstrapv1.InstallSpec{Environment: map[string]bootstrapv1.EnvironmentValue{"K3S_TOKEN": "x"}}),
		refusal{"install.environment", "must be variables of the install script"},
	},
	{
		"version in the environment",
		install(bootstrapv1.InstallSpec{Environment: map[string]bootstrapv1.EnvironmentValue{"INSTALL_K3S_VERSION": "x"}}),
		refusal{"install.environment", "the operator decides version"},
	},

	{"compression", func(s *bootstrapv1.KThreesConfigSpec) { s.Compression = bootstrapv1.CompressionGzip }, refusal{}},
	{"compressed ignition", func(s *bootstrapv1.KThreesConfigSpec) {
		s.Format, s.Compression = bootstrapv1.Ignition, bootstrapv1.CompressionGzip
	}, refusal{"", "compression is for the format cloud-config"}},
	{"ignition", func(s *bootstrapv1.KThreesConfigSpec) {
		s.Format, s.Ignition.AdditionalConfig = bootstrapv1.Ignition, "{}"
	}, refusal{}},
	{"ignition in a cloud-config", func(s *bootstrapv1.KThreesConfigSpec) {
		s.Ignition.AdditionalConfig = "{}"
	}, refusal{"", "ignition is for the format ignition"}},

	{
		"unknown backend", server(func(s *bootstrapv1.ServerConfig) { s.FlannelBackend = "ipsec" }),
		refusal{"serverConfig.flannelBackend", "supported values"},
	},
}

// datastoreConfigCases are of settings that can only be set at creation.
var datastoreConfigCases = []configCase{
	{"datastore", datastore(bootstrapv1.DatastoreSpec{EndpointFrom: fromSecret, TLSSecret: bootstrapv1.SecretReference{Name: "s"}}), refusal{}},
	{
		"datastore twice", datastore(bootstrapv1.DatastoreSpec{Endpoint: "e", EndpointFrom: fromSecret}),
		refusal{"serverConfig.datastore", "either endpoint or endpointFrom"},
	},
	{
		"datastore without a place", datastore(bootstrapv1.DatastoreSpec{TLSSecret: bootstrapv1.SecretReference{Name: "s"}}),
		refusal{"serverConfig.datastore", "either endpoint or endpointFrom"},
	},
	{
		"datastore and etcd", server(func(s *bootstrapv1.ServerConfig) {
			s.Datastore.Endpoint, s.EtcdSnapshots.Disabled = "e", ptr.To(true)
		}), refusal{"serverConfig", "are about the embedded etcd"},
	},
}

func TestConfig_DatastoreIsCheckedOnCreate(t *testing.T) {
	for _, k := range kinds {
		namespace := env.Namespace(t)
		for _, c := range datastoreConfigCases {
			t.Run(k.name+"/"+c.name, func(t *testing.T) {
				obj := k.object(namespace)
				c.change(k.config(obj))
				requireRefusal(t, c.want.below(k.configPath), env.Client.Create(context.Background(), obj))
			})
		}
	}
}

var fromSecret = bootstrapv1.FileSource{Secret: bootstrapv1.SecretFileSource{Name: "s", Key: "k"}}

func withFile(files ...bootstrapv1.File) func(*bootstrapv1.KThreesConfigSpec) {
	return func(spec *bootstrapv1.KThreesConfigSpec) { spec.Files = files }
}

func server(change func(*bootstrapv1.ServerConfig)) func(*bootstrapv1.KThreesConfigSpec) {
	return func(spec *bootstrapv1.KThreesConfigSpec) { change(&spec.ServerConfig) }
}

func agent(change func(*bootstrapv1.AgentConfig)) func(*bootstrapv1.KThreesConfigSpec) {
	return func(spec *bootstrapv1.KThreesConfigSpec) { change(&spec.AgentConfig) }
}

func labels(labels ...string) func(*bootstrapv1.KThreesConfigSpec) {
	return agent(func(a *bootstrapv1.AgentConfig) { a.NodeLabels = labels })
}

func taints(taints ...string) func(*bootstrapv1.KThreesConfigSpec) {
	return agent(func(a *bootstrapv1.AgentConfig) { a.NodeTaints = taints })
}

func install(install bootstrapv1.InstallSpec) func(*bootstrapv1.KThreesConfigSpec) {
	return func(spec *bootstrapv1.KThreesConfigSpec) { spec.Install = install }
}

func datastore(datastore bootstrapv1.DatastoreSpec) func(*bootstrapv1.KThreesConfigSpec) {
	return server(func(s *bootstrapv1.ServerConfig) { s.Datastore = datastore })
}

func cidrs(pods, services []string) func(*bootstrapv1.KThreesConfigSpec) {
	return server(func(s *bootstrapv1.ServerConfig) { s.ClusterCidr, s.ServiceCidr = pods, services })
}

func dns(services []string, address string) func(*bootstrapv1.KThreesConfigSpec) {
	return server(func(s *bootstrapv1.ServerConfig) { s.ServiceCidr, s.ClusterDNS = services, []string{address} })
}

func TestConfig_IsCheckedOnCreateAndUpdate(t *testing.T) {
	for _, k := range kinds {
		namespace := env.Namespace(t)
		for _, c := range configCases {
			t.Run(k.name+"/"+c.name, func(t *testing.T) {
				requireOnCreateAndUpdate(t, c.want.below(k.configPath),
					func() client.Object { return k.object(namespace) },
					func(obj client.Object) { c.change(k.config(obj)) })
			})
		}
	}
}

// below returns the refusal with its field put under a path.
func (r refusal) below(path string) refusal {
	if r != (refusal{}) {
		r.field = strings.TrimSuffix(path+"."+r.field, ".")
	}
	return r
}

package k3s

import (
	"maps"
	"net"
	"slices"
	"strconv"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
)

// DefaultDataDir is where K3s keeps its state unless the setting data-dir says otherwise.
const DefaultDataDir = "/var/lib/rancher/k3s"

// Config is the content of K3s' config.yaml by key. A value is a string, a bool, an int64 or a []string.
type Config map[string]any

// Endpoint is the address of a cluster's control plane.
type Endpoint struct {
	// Host is a name or an IP address.
	Host string

	// Port of the supervisor and the kube-apiserver.
	Port int32
}

// URL returns the address as https://host:port, with an IPv6 address in brackets.
func (e Endpoint) URL() string {
	return "https://" + net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port)))
}

// Server is what the operator, not the user, decides for a server.
type Server struct {
	// Init says whether the server founds the cluster. Any other server joins the one behind Endpoint.
	Init bool

	// Endpoint of the control plane.
	Endpoint Endpoint

	// Token of the servers in its full form.
	Token string

	// AgentToken is the password of the agents; empty if they use the servers' token.
	AgentToken string

	// Secret settings are those that the spec takes from Secrets.
	Secret Config
}

// ServerConfig returns the config.yaml of a server. Beyond what server and the user's spec say, it only switches
// K3s' cloud controller off, unless the spec keeps it, and puts the endpoint's host among the names of the server's
// certificate. An error tells the user which setting to change; it never quotes a value.
func ServerConfig(server Server, spec *bootstrapv1.KThreesConfigSpec) (Config, error) {
	fields := Config{}
	fields.addServer(&spec.ServerConfig)
	fields.addSnapshots(&spec.ServerConfig.EtcdSnapshots)
	fields.addAgent(&spec.AgentConfig)
	maps.Copy(fields, server.Secret)
	c := maps.Clone(fields)
	if err := c.addExtra("agentConfig.extraConfig", spec.AgentConfig.ExtraConfig, fields, checkAgentKey); err != nil {
		return nil, err
	}
	if err := c.addExtra("serverConfig.extraConfig", spec.ServerConfig.ExtraConfig, fields, checkServerKey); err != nil {
		return nil, err
	}
	if spec.Profile == bootstrapv1.ProfileCIS {
		c.hardenServer()
	}

	c.setList("tls-san", withElement(spec.ServerConfig.TLSSan, server.Endpoint.Host))
	c.setString("token", server.Token)
	c.setString("agent-token", server.AgentToken)
	switch {
	case spec.ServerConfig.HasDatastore():
		// The datastore is what the servers have in common: they neither found nor join anything else.
	case server.Init:
		c["cluster-init"] = true
	default:
		c.setString("server", server.Endpoint.URL())
	}
	return c, nil
}

// Agent is what the operator, not the user, decides for an agent.
type Agent struct {
	// Endpoint of the control plane.
	Endpoint Endpoint

	// Token of the agents in its full form.
	Token string

	// Taints of the Node at registration besides the user's, as key=value:effect or key:effect.
	Taints []string
}

// AgentConfig returns the config.yaml of an agent. It holds no setting that only a server knows, since an agent
// doesn't start with one. An error tells the user which setting to change; it never quotes a value.
func AgentConfig(agent Agent, spec *bootstrapv1.KThreesConfigSpec) (Config, error) {
	fields := Config{}
	fields.addAgent(&spec.AgentConfig)
	c := maps.Clone(fields)
	if err := c.addExtra("agentConfig.extraConfig", spec.AgentConfig.ExtraConfig, fields, checkKeyOfAgent); err != nil {
		return nil, err
	}
	if spec.Profile == bootstrapv1.ProfileCIS {
		c.hardenNode()
	}

	taints := spec.AgentConfig.NodeTaints
	for _, taint := range agent.Taints {
		taints = withElement(taints, taint)
	}
	c.setList("node-taint", taints)
	c.setString("token", agent.Token)
	c.setString("server", agent.Endpoint.URL())
	return c, nil
}

// DataDir returns the directory of K3s' state.
func (c Config) DataDir() string {
	if dir, ok := c["data-dir"].(string); ok && dir != "" {
		return dir
	}
	return DefaultDataDir
}

func (c Config) addServer(s *bootstrapv1.ServerConfig) {
	c.setList("kube-apiserver-arg", s.KubeAPIServerArg)
	c.setList("kube-controller-manager-arg", s.KubeControllerManagerArgs)
	c.setList("kube-scheduler-arg", s.KubeSchedulerArgs)
	c.setList("etcd-arg", s.EtcdArgs)

	c.setString("datastore-endpoint", s.Datastore.Endpoint)
	c.setBool("etcd-expose-metrics", s.EtcdExposeMetrics)

	c.setString("bind-address", s.BindAddress)
	c.setInt("https-listen-port", s.HTTPSListenPort)
	c.setString("advertise-address", s.AdvertiseAddress)
	c.setInt("advertise-port", s.AdvertisePort)

	c.setList("cluster-cidr", s.ClusterCidr)
	c.setList("service-cidr", s.ServiceCidr)
	c.setString("service-node-port-range", s.ServiceNodePortRange)
	c.setList("cluster-dns", s.ClusterDNS)
	c.setString("cluster-domain", s.ClusterDomain)
	c.setString("flannel-backend", s.FlannelBackend)
	c.setBool("flannel-ipv6-masq", s.FlannelIPv6Masq)
	c.setBool("flannel-external-ip", s.FlannelExternalIP)
	c.setString("egress-selector-mode", s.EgressSelectorMode)

	c.setBool("secrets-encryption", s.SecretsEncryption)
	c.setString("secrets-encryption-provider", s.SecretsEncryptionProvider)
	c.setBool("embedded-registry", s.EmbeddedRegistry)
	c.setBool("supervisor-metrics", s.SupervisorMetrics)
	c.setString("system-default-registry", s.SystemDefaultRegistry)
	c.setString("write-kubeconfig-mode", s.WriteKubeconfigMode)

	c.setList("disable", s.DisableComponents)
	c.setBool("disable-network-policy", s.DisableNetworkPolicy)
	c.setBool("disable-helm-controller", s.DisableHelmController)
	c.setBool("disable-kube-proxy", s.DisableKubeProxy)
	// K3s' own cloud controller sets provider ids that no infrastructure provider knows.
	c["disable-cloud-controller"] = s.DisableCloudController == nil || *s.DisableCloudController
}

func (c Config) addAgent(a *bootstrapv1.AgentConfig) {
	c.setString("data-dir", a.DataDir)
	c.setString("node-name", a.NodeName)
	c.setBool("with-node-id", a.WithNodeID)
	c.setList("node-ip", a.NodeIPs)
	c.setList("node-external-ip", a.NodeExternalIPs)
	c.setString("flannel-iface", a.FlannelIface)
	c.setBool("selinux", a.SELinux)
	c.setBool("protect-kernel-defaults", a.ProtectKernelDefaults)
	c.setList("node-label", a.NodeLabels)
	c.setList("node-taint", a.NodeTaints)
	c.setList("kubelet-arg", kubeletArgs(a))
	c.setList("kube-proxy-arg", a.KubeProxyArgs)
	c.setString("private-registry", a.PrivateRegistry)
}

func (c Config) addSnapshots(s *bootstrapv1.EtcdSnapshotsSpec) {
	c.setBool("etcd-disable-snapshots", s.Disabled)
	c.setString("etcd-snapshot-schedule-cron", s.Schedule)
	c.setInt("etcd-snapshot-retention", s.Retention)
	c.setString("etcd-snapshot-name", s.Name)
	c.setString("etcd-snapshot-dir", s.Dir)
	c.setBool("etcd-snapshot-compress", s.Compress)
	if s.S3 == (bootstrapv1.SnapshotS3Spec{}) {
		return
	}
	c["etcd-s3"] = true
	c.setString("etcd-s3-bucket", s.S3.Bucket)
	c.setString("etcd-s3-endpoint", s.S3.Endpoint)
	c.setString("etcd-s3-region", s.S3.Region)
	c.setString("etcd-s3-folder", s.S3.Folder)
	c.setInt("etcd-s3-retention", s.S3.Retention)
	c.setString("etcd-s3-bucket-lookup-type", s.S3.BucketLookupType)
	c.setString("etcd-s3-proxy", s.S3.Proxy)
	c.setBool("etcd-s3-insecure", s.S3.Insecure)
	c.setBool("etcd-s3-skip-ssl-verify", s.S3.SkipSSLVerify)
}

// kubeletArgs are the user's, and those that stand for fields of their own.
func kubeletArgs(a *bootstrapv1.AgentConfig) []string {
	args := slices.Clone(a.KubeletArgs)
	if a.ProviderID != "" {
		args = append(args, "provider-id="+a.ProviderID)
	}
	if a.CloudProvider != "" {
		args = append(args, "cloud-provider="+a.CloudProvider)
	}
	return args
}

func (c Config) setString(key, value string) {
	if value != "" {
		c[key] = value
	}
}

func (c Config) setInt(key string, value int32) {
	if value != 0 {
		c[key] = int64(value)
	}
}

func (c Config) setBool(key string, value *bool) {
	if value != nil {
		c[key] = *value
	}
}

func (c Config) setList(key string, values []string) {
	if len(values) > 0 {
		c[key] = slices.Clone(values)
	}
}

// Keys returns the keys in the order in which they are written.
func (c Config) Keys() []string {
	return slices.Sorted(maps.Keys(c))
}

func withElement(list []string, element string) []string {
	if slices.Contains(list, element) {
		return list
	}
	return append(slices.Clone(list), element)
}

// Strings returns the strings of a value: itself, or the elements of a list.
func (c Config) Strings(key string) []string {
	switch value := c[key].(type) {
	case string:
		return []string{value}
	case []string:
		return value
	}
	return nil
}

package config

// kind is how K3s treats the value of a flag.
type kind int

const (
	scalar   kind = iota // one value, the last wins
	boolean              // true or false
	integer              // one whole number
	duration             // one Go duration
	list                 // values add up
	csv                  // as list, and each value is split at commas
)

// flagSpec is one command line flag, which is also a key of config.yaml.
type flagSpec struct {
	name  string
	alias string
	kind  kind
	def   string
	env   []string
}

// nodeFlags are the flags that `k3s server` and `k3s agent` share.
var nodeFlags = []flagSpec{
	{name: "config", alias: "c", def: "/etc/rancher/k3s/config.yaml", env: []string{"K3S_CONFIG_FILE"}},
	{name: "debug", kind: boolean, env: []string{"K3S_DEBUG"}},
	{name: "v", kind: integer, def: "0"},
	{name: "vmodule"},
	{name: "log", alias: "l"},
	{name: "alsologtostderr", kind: boolean},
	{name: "bind-address"},
	{name: "data-dir", alias: "d", def: "/var/lib/rancher/k3s", env: []string{"K3S_DATA_DIR"}},
	{name: "token", alias: "t", env: []string{"K3S_TOKEN"}},
	{name: "token-file", env: []string{"K3S_TOKEN_FILE"}},
	{name: "server", alias: "s", env: []string{"K3S_URL"}},
	{name: "node-name", env: []string{"K3S_NODE_NAME"}},
	{name: "with-node-id", kind: boolean},
	{name: "node-label", kind: list},
	{name: "node-taint", kind: list},
	{name: "image-credential-provider-bin-dir", def: "/var/lib/rancher/credentialprovider/bin"},
	{name: "image-credential-provider-config", def: "/var/lib/rancher/credentialprovider/config.yaml"},
	{name: "docker", kind: boolean},
	{name: "container-runtime-endpoint"},
	{name: "default-runtime"},
	{name: "image-service-endpoint"},
	{name: "disable-default-registry-endpoint", kind: boolean},
	{name: "nonroot-devices", kind: boolean},
	{name: "pause-image"},
	{name: "snapshotter", def: "overlayfs"},
	{name: "private-registry", def: "/etc/rancher/k3s/registries.yaml"},
	{name: "airgap-extra-registry", kind: list},
	{name: "node-ip", alias: "i", kind: csv},
	{name: "node-external-ip", kind: csv},
	{name: "node-internal-dns", kind: csv},
	{name: "node-external-dns", kind: csv},
	{name: "resolv-conf", env: []string{"K3S_RESOLV_CONF"}},
	{name: "flannel-iface"},
	{name: "flannel-conf"},
	{name: "flannel-cni-conf"},
	{name: "vpn-auth", env: []string{"K3S_VPN_AUTH"}},
	{name: "vpn-auth-file", env: []string{"K3S_VPN_AUTH_FILE"}},
	{name: "kubelet-arg", kind: list},
	{name: "kube-proxy-arg", kind: list},
	{name: "protect-kernel-defaults", kind: boolean},
	{name: "enable-pprof", kind: boolean},
	{name: "rootless", kind: boolean},
	{name: "prefer-bundled-bin", kind: boolean},
	{name: "selinux", kind: boolean, env: []string{"K3S_SELINUX"}},
	{name: "lb-server-port", kind: integer, def: "6444", env: []string{"K3S_LB_SERVER_PORT"}},
}

// agentFlags are the flags that only `k3s agent` knows.
var agentFlags = []flagSpec{
	{name: "disable-apiserver-lb", kind: boolean},
}

// serverFlags are the flags that only `k3s server` knows.
var serverFlags = []flagSpec{
	{name: "https-listen-port", kind: integer, def: "6443"},
	{name: "supervisor-port", kind: integer, env: []string{"K3S_SUPERVISOR_PORT"}},
	{name: "apiserver-port", kind: integer, env: []string{"K3S_APISERVER_PORT"}},
	{name: "apiserver-bind-address", env: []string{"K3S_APISERVER_BIND_ADDRESS"}},
	{name: "advertise-address"},
	{name: "advertise-port", kind: integer},
	{name: "tls-san", kind: csv},
	{name: "tls-san-security", kind: boolean, def: "true"},
	{name: "cluster-cidr", kind: csv},
	{name: "service-cidr", kind: csv},
	{name: "service-node-port-range", def: "30000-32767"},
	{name: "cluster-dns", kind: csv},
	{name: "cluster-domain", def: "cluster.local"},
	{name: "flannel-backend", def: "vxlan"},
	{name: "flannel-ipv6-masq", kind: boolean},
	{name: "flannel-external-ip", kind: boolean},
	{name: "egress-selector-mode", def: "agent"},
	{name: "servicelb-namespace", def: "kube-system"},
	{name: "write-kubeconfig", alias: "o", env: []string{"K3S_KUBECONFIG_OUTPUT"}},
	{name: "write-kubeconfig-mode", env: []string{"K3S_KUBECONFIG_MODE"}},
	{name: "write-kubeconfig-group", env: []string{"K3S_KUBECONFIG_GROUP"}},
	{name: "helm-job-image"},
	{name: "agent-token", env: []string{"K3S_AGENT_TOKEN"}},
	{name: "agent-token-file", env: []string{"K3S_AGENT_TOKEN_FILE"}},
	{name: "cluster-init", kind: boolean, env: []string{"K3S_CLUSTER_INIT"}},
	{name: "cluster-reset", kind: boolean, env: []string{"K3S_CLUSTER_RESET"}},
	{name: "cluster-reset-restore-path"},
	{name: "kube-apiserver-arg", kind: list},
	{name: "etcd-arg", kind: list},
	{name: "kube-controller-manager-arg", kind: list},
	{name: "kube-scheduler-arg", kind: list},
	{name: "helm-controller-arg", kind: list},
	{name: "kube-cloud-controller-manager-arg", kind: list},
	{name: "kube-controller-arg", kind: list},
	{name: "kube-cloud-controller-arg", kind: list},
	{name: "kine-tls", kind: boolean},
	{name: "datastore-endpoint", env: []string{"K3S_DATASTORE_ENDPOINT"}},
	{name: "datastore-cafile", env: []string{"K3S_DATASTORE_CAFILE"}},
	{name: "datastore-certfile", env: []string{"K3S_DATASTORE_CERTFILE"}},
	{name: "datastore-keyfile", env: []string{"K3S_DATASTORE_KEYFILE"}},
	{name: "etcd-expose-metrics", kind: boolean},
	{name: "etcd-disable-snapshots", kind: boolean},
	{name: "etcd-snapshot-name", def: "etcd-snapshot"},
	{name: "etcd-snapshot-schedule-cron", def: "0 */12 * * *"},
	{name: "etcd-snapshot-reconcile-interval", kind: duration, def: "10m"},
	{name: "etcd-snapshot-retention", kind: integer, def: "5"},
	{name: "etcd-snapshot-dir"},
	{name: "etcd-snapshot-compress", kind: boolean},
	{name: "etcd-s3", kind: boolean},
	{name: "etcd-s3-endpoint", def: "s3.amazonaws.com"},
	{name: "etcd-s3-endpoint-ca"},
	{name: "etcd-s3-skip-ssl-verify", kind: boolean},
	{name: "etcd-s3-access-key", env: []string{"AWS_ACCESS_KEY_ID"}},
	{name: "etcd-s3-secret-key", env: []string{"AWS_SECRET_ACCESS_KEY"}},
	{name: "etcd-s3-session-token", env: []string{"AWS_SESSION_TOKEN"}},
	{name: "etcd-s3-bucket"},
	{name: "etcd-s3-bucket-lookup-type", def: "auto"},
	{name: "etcd-s3-region", def: "us-east-1"},
	{name: "etcd-s3-folder"},
	{name: "etcd-s3-retention", kind: integer, def: "5"},
	{name: "etcd-s3-proxy"},
	{name: "etcd-s3-config-secret"},
	{name: "etcd-s3-insecure", kind: boolean},
	{name: "etcd-s3-timeout", kind: duration, def: "5m"},
	{name: "default-local-storage-path"},
	{name: "disable", kind: csv},
	{name: "disable-scheduler", kind: boolean},
	{name: "disable-cloud-controller", kind: boolean},
	{name: "disable-kube-proxy", kind: boolean},
	{name: "disable-network-policy", kind: boolean},
	{name: "disable-helm-controller", kind: boolean},
	{name: "disable-apiserver", kind: boolean},
	{name: "disable-controller-manager", kind: boolean},
	{name: "disable-etcd", kind: boolean},
	{name: "disable-agent", kind: boolean},
	{name: "embedded-registry", kind: boolean},
	{name: "supervisor-metrics", kind: boolean},
	{name: "system-default-registry", env: []string{"K3S_SYSTEM_DEFAULT_REGISTRY"}},
	{name: "secrets-encryption", kind: boolean},
	{name: "secrets-encryption-provider", def: "aescbc"},
}

// specsFor returns the flags of a sub-command, by name and by alias.
func specsFor(command string) map[string]flagSpec {
	all := append([]flagSpec{}, nodeFlags...)
	if command == CommandAgent {
		all = append(all, agentFlags...)
	} else {
		all = append(all, serverFlags...)
	}
	specs := map[string]flagSpec{}
	for _, spec := range all {
		specs[spec.name] = spec
		if spec.alias != "" {
			specs[spec.alias] = spec
		}
	}
	return specs
}

package v1beta3

import apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

// ExtraConfig holds settings of K3s' config.yaml that have no field of their own, keyed as in config.yaml
// (for example "pause-image"). Keys that the operator owns, such as token, server or cluster-init, and keys that
// have a field of their own, are refused.
// +kubebuilder:validation:MaxProperties=100
type ExtraConfig map[string]apiextensionsv1.JSON

// ServerConfig configures the K3s server. A field's comment names the key of K3s' config.yaml. Immutable fields may
// be set to K3s' default when they were absent, and the other way round.
// +kubebuilder:validation:XValidation:rule="!((!has(self.clusterCidr) || self.clusterCidr.all(c, isCIDR(c))) && (!has(self.serviceCidr) || self.serviceCidr.all(c, isCIDR(c)))) || (has(self.clusterCidr) && has(self.serviceCidr) ? self.clusterCidr.map(c, cidr(c).ip().family()) == self.serviceCidr.map(c, cidr(c).ip().family()) : (!has(self.clusterCidr) || self.clusterCidr.size() < 2) && (!has(self.serviceCidr) || self.serviceCidr.size() < 2))",message="clusterCidr and serviceCidr must have the same IP families in the same order: set both for dual-stack"
// +kubebuilder:validation:XValidation:rule="!((!has(self.clusterCidr) || self.clusterCidr.all(c, isCIDR(c))) && (!has(self.serviceCidr) || self.serviceCidr.all(c, isCIDR(c)))) || !(has(self.clusterCidr) ? self.clusterCidr : ['10.42.0.0/16']).exists(p, (has(self.serviceCidr) ? self.serviceCidr : ['10.43.0.0/16']).exists(s, cidr(p).containsCIDR(s) || cidr(s).containsCIDR(p)))",message="clusterCidr and serviceCidr must not overlap; their defaults are 10.42.0.0/16 and 10.43.0.0/16"
// +kubebuilder:validation:XValidation:rule="!has(self.clusterDNS) || !self.clusterDNS.all(a, isIP(a)) || !(!has(self.serviceCidr) || self.serviceCidr.all(c, isCIDR(c))) || self.clusterDNS.all(a, (has(self.serviceCidr) ? self.serviceCidr : ['10.43.0.0/16', 'fd00:43::/112']).exists(c, cidr(c).containsIP(a)))",message="clusterDNS must be within serviceCidr, whose default is 10.43.0.0/16"
// +kubebuilder:validation:XValidation:rule="!has(self.datastore) || !(has(self.etcdArgs) || has(self.etcdSnapshots) || has(self.etcdExposeMetrics))",message="etcdArgs, etcdSnapshots and etcdExposeMetrics are about the embedded etcd: remove them, or datastore"
type ServerConfig struct {
	// kubeAPIServerArg are flags of kube-apiserver as name=value (kube-apiserver-arg).
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=4096
	KubeAPIServerArg []string `json:"kubeAPIServerArg,omitempty"`

	// kubeControllerManagerArgs are flags of kube-controller-manager as name=value
	// (kube-controller-manager-arg).
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=4096
	KubeControllerManagerArgs []string `json:"kubeControllerManagerArgs,omitempty"`

	// kubeSchedulerArgs are flags of kube-scheduler as name=value (kube-scheduler-arg).
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=4096
	KubeSchedulerArgs []string `json:"kubeSchedulerArgs,omitempty"`

	// etcdArgs are flags of the embedded etcd as name=value (etcd-arg).
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=4096
	EtcdArgs []string `json:"etcdArgs,omitempty"`

	// tlsSan are further names and addresses of the server's certificate (tls-san). The control plane endpoint
	// is always among them.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	TLSSan []string `json:"tlsSan,omitempty"`

	// bindAddress is the address K3s listens on (bind-address). Defaults to 0.0.0.0.
	// +optional
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="isIP(self) || self.contains('{{')",message="must be an IP address, for example 0.0.0.0, or an expression over the instance data, for example {{ ds.meta_data.local_ipv4 }}"
	BindAddress string `json:"bindAddress,omitempty"`

	// httpsListenPort is the port of the supervisor and the kube-apiserver (https-listen-port). Defaults to 6443.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	HTTPSListenPort int32 `json:"httpsListenPort,omitempty"`

	// advertiseAddress is the address kube-apiserver advertises (advertise-address).
	// +optional
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="isIP(self) || self.contains('{{')",message="must be an IP address or an expression over the instance data, for example {{ ds.meta_data.local_ipv4 }}"
	AdvertiseAddress string `json:"advertiseAddress,omitempty"`

	// advertisePort is the port kube-apiserver advertises (advertise-port). Defaults to httpsListenPort.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	AdvertisePort int32 `json:"advertisePort,omitempty"`

	// clusterCidr are the CIDRs of pods, one per IP family (cluster-cidr). Immutable.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:MaxLength=49
	// +kubebuilder:validation:XValidation:rule="self.all(c, isCIDR(c))",message="each entry must be a CIDR, for example 10.42.0.0/16"
	// +kubebuilder:validation:XValidation:rule="self.size() < 2 || !self.all(c, isCIDR(c)) || cidr(self[0]).ip().family() != cidr(self[1]).ip().family()",message="two entries must be of different IP families: one of IPv4 and one of IPv6"
	ClusterCidr []string `json:"clusterCidr,omitempty"`

	// serviceCidr are the CIDRs of Services, one per IP family (service-cidr). Immutable.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:MaxLength=49
	// +kubebuilder:validation:XValidation:rule="self.all(c, isCIDR(c))",message="each entry must be a CIDR, for example 10.43.0.0/16"
	// +kubebuilder:validation:XValidation:rule="self.size() < 2 || !self.all(c, isCIDR(c)) || cidr(self[0]).ip().family() != cidr(self[1]).ip().family()",message="two entries must be of different IP families: one of IPv4 and one of IPv6"
	ServiceCidr []string `json:"serviceCidr,omitempty"`

	// clusterDNS are the addresses of the DNS Service, within serviceCidr (cluster-dns). Immutable.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="self.all(a, isIP(a))",message="each entry must be an IP address, for example 10.43.0.10"
	ClusterDNS []string `json:"clusterDNS,omitempty"`

	// clusterDomain is the DNS domain of the cluster (cluster-domain). Immutable. Defaults to cluster.local.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	ClusterDomain string `json:"clusterDomain,omitempty"`

	// flannelBackend selects the network backend (flannel-backend). Immutable. Defaults to vxlan.
	// +optional
	// +kubebuilder:validation:Enum=none;vxlan;host-gw;wireguard-native
	FlannelBackend string `json:"flannelBackend,omitempty"`

	// flannelIPv6Masq masquerades IPv6 traffic of pods (flannel-ipv6-masq). Immutable.
	// +optional
	FlannelIPv6Masq *bool `json:"flannelIPv6Masq,omitempty"`

	// flannelExternalIP uses the nodes' external addresses for pod traffic (flannel-external-ip). Immutable.
	// +optional
	FlannelExternalIP *bool `json:"flannelExternalIP,omitempty"`

	// egressSelectorMode says how kube-apiserver reaches nodes and pods (egress-selector-mode). Immutable.
	// Defaults to agent.
	// +optional
	// +kubebuilder:validation:Enum=agent;cluster;pod;disabled
	EgressSelectorMode string `json:"egressSelectorMode,omitempty"`

	// secretsEncryption encrypts Secrets at rest (secrets-encryption). Immutable.
	// +optional
	SecretsEncryption *bool `json:"secretsEncryption,omitempty"`

	// secretsEncryptionProvider selects the cipher (secrets-encryption-provider). Immutable. Defaults to aescbc.
	// +optional
	// +kubebuilder:validation:Enum=aescbc;secretbox
	SecretsEncryptionProvider string `json:"secretsEncryptionProvider,omitempty"`

	// embeddedRegistry serves images from node to node (embedded-registry). Immutable.
	// +optional
	EmbeddedRegistry *bool `json:"embeddedRegistry,omitempty"`

	// supervisorMetrics serves K3s' own metrics (supervisor-metrics). Immutable.
	// +optional
	SupervisorMetrics *bool `json:"supervisorMetrics,omitempty"`

	// disableComponents are packaged components that are not deployed (disable).
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=20
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	DisableComponents []string `json:"disableComponents,omitempty"`

	// disableCloudController switches off K3s' own cloud controller (disable-cloud-controller). Immutable.
	// Defaults to true: K3s' controller sets a provider id that no infrastructure provider knows.
	// +optional
	DisableCloudController *bool `json:"disableCloudController,omitempty"`

	// disableNetworkPolicy switches off K3s' network policy controller (disable-network-policy). Immutable.
	// +optional
	DisableNetworkPolicy *bool `json:"disableNetworkPolicy,omitempty"`

	// disableHelmController switches off K3s' Helm controller (disable-helm-controller). Immutable.
	// +optional
	DisableHelmController *bool `json:"disableHelmController,omitempty"`

	// disableKubeProxy switches off kube-proxy (disable-kube-proxy).
	// +optional
	DisableKubeProxy *bool `json:"disableKubeProxy,omitempty"`

	// systemDefaultRegistry is the registry of all system images (system-default-registry).
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	SystemDefaultRegistry string `json:"systemDefaultRegistry,omitempty"`

	// serviceNodePortRange are the ports of Services of type NodePort (service-node-port-range). Defaults to
	// 30000-32767.
	// +optional
	// +kubebuilder:validation:MinLength=3
	// +kubebuilder:validation:MaxLength=11
	// +kubebuilder:validation:Pattern=`^[1-9][0-9]{0,4}-[1-9][0-9]{0,4}$`
	ServiceNodePortRange string `json:"serviceNodePortRange,omitempty"`

	// writeKubeconfigMode is the mode of the kubeconfig on the machine (write-kubeconfig-mode). Defaults to "0600".
	// +optional
	// +kubebuilder:validation:MinLength=3
	// +kubebuilder:validation:MaxLength=4
	// +kubebuilder:validation:Pattern=`^[0-7]{3,4}$`
	WriteKubeconfigMode string `json:"writeKubeconfigMode,omitempty"`

	// etcdExposeMetrics serves etcd's metrics to other machines (etcd-expose-metrics).
	// +optional
	EtcdExposeMetrics *bool `json:"etcdExposeMetrics,omitempty"`

	// etcdSnapshots says when snapshots are taken of the embedded etcd, and where they go.
	// +optional
	EtcdSnapshots EtcdSnapshotsSpec `json:"etcdSnapshots,omitempty,omitzero"`

	// datastore is one outside of the cluster, in place of the embedded etcd. A cluster can't change between the two.
	// +optional
	Datastore DatastoreSpec `json:"datastore,omitempty,omitzero"`

	// extraConfig holds any other setting of a K3s server, keyed as in config.yaml.
	// +optional
	ExtraConfig ExtraConfig `json:"extraConfig,omitempty"`
}

// AgentConfig configures the node part of K3s. A field's comment names the key of K3s' config.yaml.
// +kubebuilder:validation:XValidation:rule="!has(self.providerID) || !has(self.kubeletArgs) || !self.kubeletArgs.exists(a, a.startsWith('provider-id='))",message="set either providerID or provider-id in kubeletArgs, not both"
// +kubebuilder:validation:XValidation:rule="!has(self.cloudProvider) || !has(self.kubeletArgs) || !self.kubeletArgs.exists(a, a.startsWith('cloud-provider='))",message="set either cloudProvider or cloud-provider in kubeletArgs, not both"
type AgentConfig struct {
	// nodeName is the name of the Node (node-name). Defaults to the host's name. Where several machines are made
	// from it, it must be an expression over the instance data, for example {{ ds.meta_data.local_hostname }}.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	NodeName string `json:"nodeName,omitempty"`

	// nodeLabels are labels of the Node at registration as key=value (node-label).
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.all(l, l.contains('{{') || l.matches('^(([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?=([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?)(,([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?=([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?)*$'))",message="each entry must be key=value, as Kubernetes writes labels; the value may be empty"
	// +kubebuilder:validation:XValidation:rule="!self.exists(l, l.split('=')[0].matches('^([^/]*[.])?(kubernetes|k8s)[.]io/') && !l.startsWith('node-role.kubernetes.io/') && !l.split('=')[0].matches('^([^/]*[.])?(kubelet|node)[.]kubernetes[.]io/') && !(l.split('=')[0] in ['kubernetes.io/hostname', 'kubernetes.io/arch', 'kubernetes.io/os', 'beta.kubernetes.io/arch', 'beta.kubernetes.io/os', 'beta.kubernetes.io/instance-type', 'topology.kubernetes.io/zone', 'topology.kubernetes.io/region', 'failure-domain.beta.kubernetes.io/zone', 'failure-domain.beta.kubernetes.io/region']))",message="a kubelet doesn't start with labels of kubernetes.io and k8s.io that aren't its own: use a prefix of yours, or, for node-restriction.kubernetes.io, put the label on the Machine, in the metadata of the machine template, and Cluster API keeps it on the Node"
	// +kubebuilder:validation:XValidation:rule="!self.exists(l, l.startsWith('node-role.kubernetes.io/'))",message="a kubelet may not give itself a role: put the node-role.kubernetes.io label on the Machine, in the metadata of the machine template, and Cluster API keeps it on the Node"
	NodeLabels []string `json:"nodeLabels,omitempty"`

	// nodeTaints are taints of the Node at registration as key=value:effect (node-taint).
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.all(t, t.contains('{{') || t.matches('^(([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?(=([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?)?:(NoSchedule|PreferNoSchedule|NoExecute))(,([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?(=([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?)?:(NoSchedule|PreferNoSchedule|NoExecute))*$'))",message="each entry must be key=value:effect or key:effect, with the effect NoSchedule, PreferNoSchedule or NoExecute"
	NodeTaints []string `json:"nodeTaints,omitempty"`

	// kubeletArgs are flags of the kubelet as name=value (kubelet-arg).
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=4096
	KubeletArgs []string `json:"kubeletArgs,omitempty"`

	// kubeProxyArgs are flags of kube-proxy as name=value (kube-proxy-arg).
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=4096
	KubeProxyArgs []string `json:"kubeProxyArgs,omitempty"`

	// dataDir is the folder of K3s' state (data-dir). Defaults to /var/lib/rancher/k3s.
	// +optional
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self.matches('^(/[A-Za-z0-9_.-]+)+$')",message="must be an absolute path of letters, digits, dots, dashes and underscores, without a slash at the end"
	DataDir string `json:"dataDir,omitempty"`

	// nodeIPs are the addresses of the Node, one per IP family (node-ip). An expression over the instance data, such
	// as {{ ds.meta_data.local_ipv4 }}, is rendered on the machine.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.all(a, isIP(a) || a.contains('{{'))",message="each entry must be an IP address or an expression over the instance data, for example {{ ds.meta_data.local_ipv4 }}"
	NodeIPs []string `json:"nodeIPs,omitempty"`

	// nodeExternalIPs are the addresses at which the Node is reached from outside, one per IP family
	// (node-external-ip).
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.all(a, isIP(a) || a.contains('{{'))",message="each entry must be an IP address or an expression over the instance data, for example {{ ds.meta_data.public_ipv4 }}"
	NodeExternalIPs []string `json:"nodeExternalIPs,omitempty"`

	// withNodeID adds an id of the machine to the Node's name (with-node-id), for hosts that may share a name.
	// +optional
	WithNodeID *bool `json:"withNodeID,omitempty"`

	// providerID is the Node's provider id (provider-id of the kubelet), where neither a cloud provider nor the
	// infrastructure provider sets it: an expression such as aws:///{{ v1.availability_zone }}/{{ v1.instance_id }}.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	ProviderID string `json:"providerID,omitempty"`

	// cloudProvider is external if a cloud controller manager initializes the Nodes (cloud-provider of the kubelet):
	// until it did, they are tainted node.cloudprovider.kubernetes.io/uninitialized. Leave it out if there is none.
	// +optional
	// +kubebuilder:validation:Enum=external
	CloudProvider string `json:"cloudProvider,omitempty"`

	// flannelIface is the network interface of pod traffic (flannel-iface).
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	FlannelIface string `json:"flannelIface,omitempty"`

	// selinux labels containers (selinux). The machine must have K3s' policy.
	// +optional
	SELinux *bool `json:"selinux,omitempty"`

	// protectKernelDefaults lets the kubelet start only if the kernel's settings are those that it wants
	// (protect-kernel-defaults).
	// +optional
	ProtectKernelDefaults *bool `json:"protectKernelDefaults,omitempty"`

	// kubeletConfiguration has fields of a KubeletConfiguration, such as maxPods. It becomes a file in the kubelet's
	// drop-in folder.
	// +optional
	// +kubebuilder:validation:Type=object
	KubeletConfiguration apiextensionsv1.JSON `json:"kubeletConfiguration,omitempty,omitzero"`

	// registries is the content of K3s' registries file.
	// +optional
	Registries RegistriesSpec `json:"registries,omitempty,omitzero"`

	// privateRegistry is the path of the registries file on the machine (private-registry).
	// Defaults to /etc/rancher/k3s/registries.yaml.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	PrivateRegistry string `json:"privateRegistry,omitempty"`

	// extraConfig holds any other setting that a K3s agent knows, keyed as in config.yaml.
	// +optional
	ExtraConfig ExtraConfig `json:"extraConfig,omitempty"`
}

// RegistriesSpec is the content of K3s' registries file: mirrors, and how to reach and log in to registries.
// +kubebuilder:validation:XValidation:rule="has(self.content) != has(self.contentFrom)",message="set either content or contentFrom"
type RegistriesSpec struct {
	// content in YAML. Whoever may read the KThreesConfig can read it: passwords belong into contentFrom.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=10240
	Content string `json:"content,omitempty"`

	// contentFrom names a source of the content.
	// +optional
	ContentFrom FileSource `json:"contentFrom,omitempty,omitzero"`
}

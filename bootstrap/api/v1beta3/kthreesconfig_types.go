package v1beta3

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// Format is the format of bootstrap data.
// +kubebuilder:validation:Enum=cloud-config;ignition
type Format string

const (
	// CloudConfig is cloud-init's format; it is the default.
	CloudConfig Format = "cloud-config"

	// Ignition is the format of Flatcar Container Linux and Fedora CoreOS, in version 3.4.
	Ignition Format = "ignition"
)

// Compression is a way to compress bootstrap data as a whole.
// +kubebuilder:validation:Enum=gzip
type Compression string

// CompressionGzip is understood by cloud-init, whatever the infrastructure.
const CompressionGzip Compression = "gzip"

// Profile is a set of settings that belong together.
// +kubebuilder:validation:Enum=cis
type Profile string

// ProfileCIS follows K3s' guide to the CIS benchmark.
const ProfileCIS Profile = "cis"

// KThreesConfigSpec is what a user may say about a K3s node. The K3s version is not part of it: the Machine's
// or MachinePool's version decides.
// +kubebuilder:validation:XValidation:rule="!has(self.compression) || !has(self.format) || self.format == 'cloud-config'",message="compression is for the format cloud-config: remove it"
// +kubebuilder:validation:XValidation:rule="!has(self.ignition) || has(self.format) && self.format == 'ignition'",message="ignition is for the format ignition: set format to it, or remove ignition"
type KThreesConfigSpec struct {
	// format of the bootstrap data. Defaults to cloud-config.
	// +optional
	Format Format `json:"format,omitempty"`

	// compression of the bootstrap data as a whole, for clouds with a low limit. The infrastructure provider must
	// pass bytes on as they are.
	// +optional
	Compression Compression `json:"compression,omitempty"`

	// ignition is about the format ignition.
	// +optional
	Ignition IgnitionSpec `json:"ignition,omitempty,omitzero"`

	// profile cis hardens the node as K3s' guide to the CIS benchmark says; docs/bootstrap.md lists what it sets. What
	// the spec says itself is stronger than the profile.
	// +optional
	Profile Profile `json:"profile,omitempty"`

	// install says where K3s comes from.
	// +optional
	Install InstallSpec `json:"install,omitempty,omitzero"`

	// proxy names the machine's proxies.
	// +optional
	Proxy ProxySpec `json:"proxy,omitempty,omitzero"`

	// files are written to the machine before K3s is installed.
	// +optional
	// +listType=map
	// +listMapKey=path
	// +kubebuilder:validation:MaxItems=200
	Files []File `json:"files,omitempty"`

	// preK3sCommands run in order before K3s is installed; a command that fails stops the bootstrap.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=10240
	PreK3sCommands []string `json:"preK3sCommands,omitempty"`

	// postK3sCommands run in order once K3s runs; the machine counts as bootstrapped after they succeeded.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=10240
	PostK3sCommands []string `json:"postK3sCommands,omitempty"`

	// serverConfig configures the K3s server; it is ignored on workers.
	// +optional
	ServerConfig ServerConfig `json:"serverConfig,omitempty,omitzero"`

	// agentConfig configures the node part of K3s, on servers and workers alike.
	// +optional
	AgentConfig AgentConfig `json:"agentConfig,omitempty,omitzero"`
}

// KThreesConfigStatus is the observed state of a KThreesConfig.
// +kubebuilder:validation:MinProperties=1
type KThreesConfigStatus struct {
	// conditions represent the observations of the KThreesConfig's current state.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// initialization tells Cluster API about the first bootstrap.
	// +optional
	Initialization KThreesConfigInitializationStatus `json:"initialization,omitempty,omitzero"`

	// dataSecretName is the name of the Secret that holds the bootstrap data.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	DataSecretName string `json:"dataSecretName,omitempty"`

	// observedGeneration is the latest generation that was reconciled with success.
	// +optional
	// +kubebuilder:validation:Minimum=1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// KThreesConfigInitializationStatus is the part of the status that Cluster API's contract asks for.
// +kubebuilder:validation:MinProperties=1
type KThreesConfigInitializationStatus struct {
	// dataSecretCreated is true once the bootstrap data exists.
	// +optional
	DataSecretCreated *bool `json:"dataSecretCreated,omitempty"`
}

// +kubebuilder:object:root=true
// +kubebuilder:resource:path=kthreesconfigs,shortName=k3c,scope=Namespaced,categories=cluster-api
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta2=v1beta3"
// +kubebuilder:printcolumn:name="Cluster",type="string",JSONPath=".metadata.labels['cluster\\.x-k8s\\.io/cluster-name']",description="Cluster"
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Bootstrap data is ready"
// +kubebuilder:printcolumn:name="Paused",type="string",JSONPath=`.status.conditions[?(@.type=="Paused")].status`,description="Reconciliation paused",priority=10
// +kubebuilder:printcolumn:name="Data secret created",type="string",JSONPath=`.status.initialization.dataSecretCreated`,description="Bootstrap data Secret is created"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"

// KThreesConfig describes how a Machine becomes a K3s node.
type KThreesConfig struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state of the KThreesConfig.
	// +optional
	Spec KThreesConfigSpec `json:"spec,omitempty,omitzero"`

	// status is the observed state of the KThreesConfig.
	// +optional
	Status KThreesConfigStatus `json:"status,omitempty,omitzero"`
}

// GetConditions returns the conditions of the KThreesConfig.
func (c *KThreesConfig) GetConditions() []metav1.Condition {
	return c.Status.Conditions
}

// SetConditions replaces the conditions of the KThreesConfig.
func (c *KThreesConfig) SetConditions(conditions []metav1.Condition) {
	c.Status.Conditions = conditions
}

// +kubebuilder:object:root=true

// KThreesConfigList is a list of KThreesConfigs.
type KThreesConfigList struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard list's metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// items is the list of KThreesConfigs.
	Items []KThreesConfig `json:"items"`
}

// KThreesConfigTemplateSpec is the desired state of a KThreesConfigTemplate.
type KThreesConfigTemplateSpec struct {
	// template is the KThreesConfig to be made from this template.
	// +required
	Template KThreesConfigTemplateResource `json:"template,omitempty,omitzero"`
}

// KThreesConfigTemplateResource is a KThreesConfig without a name.
// +kubebuilder:validation:XValidation:rule="!has(self.spec) || !has(self.spec.agentConfig) || !has(self.spec.agentConfig.nodeName) || self.spec.agentConfig.nodeName.contains('{{')",message="every machine needs a name of its own: leave nodeName out, or write an expression such as {{ ds.meta_data.local_hostname }}"
type KThreesConfigTemplateResource struct {
	// metadata is copied to the KThreesConfigs made from this template.
	// +optional
	ObjectMeta clusterv1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec is the spec of the KThreesConfigs made from this template.
	// +optional
	Spec KThreesConfigSpec `json:"spec,omitempty,omitzero"`
}

// +kubebuilder:object:root=true
// +kubebuilder:resource:path=kthreesconfigtemplates,shortName=k3ct,scope=Namespaced,categories=cluster-api
// +kubebuilder:storageversion
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta2=v1beta3"
// +kubebuilder:printcolumn:name="ClusterClass",type="string",JSONPath=`.metadata.ownerReferences[?(@.kind=="ClusterClass")].name`,description="Name of the ClusterClass owning this template"
// +kubebuilder:printcolumn:name="Cluster",type="string",JSONPath=`.metadata.ownerReferences[?(@.kind=="Cluster")].name`,description="Name of the Cluster owning this template"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"

// KThreesConfigTemplate is a template for the KThreesConfigs of workers.
type KThreesConfigTemplate struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state of the KThreesConfigTemplate.
	// +optional
	Spec KThreesConfigTemplateSpec `json:"spec,omitempty,omitzero"`
}

// +kubebuilder:object:root=true

// KThreesConfigTemplateList is a list of KThreesConfigTemplates.
type KThreesConfigTemplateList struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard list's metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// items is the list of KThreesConfigTemplates.
	Items []KThreesConfigTemplate `json:"items"`
}

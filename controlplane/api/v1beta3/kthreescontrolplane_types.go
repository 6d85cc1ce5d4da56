package v1beta3

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
)

// KThreesControlPlaneSpec is the desired state of a K3s control plane.
//
// Further rules are generated: the settings that K3s compares on join are immutable.
// +kubebuilder:validation:XValidation:rule="!has(self.replicas) || self.replicas % 2 == 1 || self.?kthreesConfigSpec.?serverConfig.?datastore.hasValue() || self.?kthreesConfigSpec.?serverConfig.?extraConfig.?datastore__dash__endpoint.hasValue()",message="replicas must be odd with the embedded etcd, where an even number bears no more failures than one server fewer: write 1, 3 or 5, or name an external datastore in kthreesConfigSpec.serverConfig.datastore",fieldPath=".replicas"
// +kubebuilder:validation:XValidation:rule="(self.?kthreesConfigSpec.?serverConfig.?datastore.hasValue() || self.?kthreesConfigSpec.?serverConfig.?extraConfig.?datastore__dash__endpoint.hasValue()) == (oldSelf.?kthreesConfigSpec.?serverConfig.?datastore.hasValue() || oldSelf.?kthreesConfigSpec.?serverConfig.?extraConfig.?datastore__dash__endpoint.hasValue())",message="a control plane can't move between the embedded etcd and an external datastore: create a new cluster and move the workload there"
// +kubebuilder:validation:XValidation:rule="self.?rollout.?strategy.?rollingUpdate.?maxSurge.orValue(1) != 0 || self.?replicas.orValue(1) >= 3",message="maxSurge 0 takes a server away before its replacement is there, which needs 3 or more replicas: set rollout.strategy.rollingUpdate.maxSurge to 1 first"
// +kubebuilder:validation:XValidation:rule="!has(self.kthreesConfigSpec) || !has(self.kthreesConfigSpec.agentConfig) || !has(self.kthreesConfigSpec.agentConfig.nodeName) || self.kthreesConfigSpec.agentConfig.nodeName.contains('{{')",message="every machine needs a name of its own: leave nodeName out, or write an expression such as {{ ds.meta_data.local_hostname }}"
type KThreesControlPlaneSpec struct {
	// replicas is the number of servers. With the embedded etcd it must be odd. Defaults to 1.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:XValidation:rule="self >= 1",message="replicas must be 1 or more: to get rid of the servers, delete the Cluster"
	Replicas *int32 `json:"replicas,omitempty"`

	// version is the K3s version of the servers, for example v1.36.3+k3s1. It may go up by one minor version at a
	// time, counted from the oldest server, and never below what the servers run.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^v(0|[1-9][0-9]{0,2})([.](0|[1-9][0-9]{0,2})){2}(-rc[0-9]{1,2})?[+]k3s[1-9][0-9]{0,2}$')",message="version must be that of a K3s release, with a leading v and the +k3s suffix, for example v1.36.3+k3s1"
	Version string `json:"version,omitempty"`

	// machineTemplate says how the servers' Machines are made.
	// +required
	MachineTemplate KThreesControlPlaneMachineTemplate `json:"machineTemplate,omitempty,omitzero"`

	// kthreesConfigSpec is the configuration of the servers.
	// +optional
	KThreesConfigSpec bootstrapv1.KThreesConfigSpec `json:"kthreesConfigSpec,omitempty,omitzero"`

	// rollout says when and how Machines are replaced.
	// +optional
	Rollout RolloutSpec `json:"rollout,omitempty,omitzero"`

	// remediation says how unhealthy Machines are replaced.
	// +optional
	Remediation RemediationSpec `json:"remediation,omitempty,omitzero"`

	// machineNaming says how Machines are named.
	// +optional
	MachineNaming MachineNamingSpec `json:"machineNaming,omitempty,omitzero"`
}

// KThreesControlPlaneMachineTemplate says how the servers' Machines are made.
type KThreesControlPlaneMachineTemplate struct {
	// metadata is kept on the Machines and on their bootstrap and infrastructure objects.
	// +optional
	ObjectMeta clusterv1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec is used for the Machines.
	// +required
	Spec KThreesControlPlaneMachineTemplateSpec `json:"spec,omitempty,omitzero"`
}

// KThreesControlPlaneMachineTemplateSpec is used for the servers' Machines.
type KThreesControlPlaneMachineTemplateSpec struct {
	// infrastructureRef names the template of the infrastructure machines.
	// +required
	InfrastructureRef clusterv1.ContractVersionedObjectReference `json:"infrastructureRef,omitempty,omitzero"`

	MachineSettings `json:",inline"`
}

// MachineSettings are the settings of Machines that change without a rollout.
type MachineSettings struct {
	// readinessGates are further conditions that a Machine must have to be ready.
	// +optional
	// +listType=map
	// +listMapKey=conditionType
	// +kubebuilder:validation:MaxItems=32
	ReadinessGates []clusterv1.MachineReadinessGate `json:"readinessGates,omitempty"`

	// deletion says how long the steps of a Machine's deletion may take.
	// +optional
	Deletion MachineDeletionSpec `json:"deletion,omitempty,omitzero"`

	// taints are kept on the Nodes by Cluster API; they need its feature gate MachineTaintPropagation.
	// +optional
	// +listType=map
	// +listMapKey=key
	// +listMapKey=effect
	// +kubebuilder:validation:MaxItems=64
	Taints []clusterv1.MachineTaint `json:"taints,omitempty"`
}

// MachineDeletionSpec says how long the steps of a Machine's deletion may take, in seconds; 0 waits forever.
type MachineDeletionSpec struct {
	// nodeDrainTimeoutSeconds is the time for draining the Node.
	// +optional
	// +kubebuilder:validation:Minimum=0
	NodeDrainTimeoutSeconds *int32 `json:"nodeDrainTimeoutSeconds,omitempty"`

	// nodeVolumeDetachTimeoutSeconds is the time for detaching the Node's volumes.
	// +optional
	// +kubebuilder:validation:Minimum=0
	NodeVolumeDetachTimeoutSeconds *int32 `json:"nodeVolumeDetachTimeoutSeconds,omitempty"`

	// nodeDeletionTimeoutSeconds is the time for deleting the Node.
	// +optional
	// +kubebuilder:validation:Minimum=0
	NodeDeletionTimeoutSeconds *int32 `json:"nodeDeletionTimeoutSeconds,omitempty"`
}

// RolloutSpec says when and how Machines are replaced.
type RolloutSpec struct {
	// before asks for replacement ahead of an event.
	// +optional
	Before RolloutBeforeSpec `json:"before,omitempty,omitzero"`

	// after replaces the Machines that were created before this time, once it has come.
	// +optional
	After metav1.Time `json:"after,omitempty,omitzero"`

	// strategy says how Machines are replaced.
	// +optional
	Strategy RolloutStrategy `json:"strategy,omitempty,omitzero"`
}

// RolloutBeforeSpec asks for replacement ahead of an event.
type RolloutBeforeSpec struct {
	// certificatesExpiryDays replaces a Machine this many days before its certificates expire. K3s renews them
	// only when it starts.
	// +optional
	// +kubebuilder:validation:Minimum=7
	CertificatesExpiryDays int32 `json:"certificatesExpiryDays,omitempty"`
}

// RolloutStrategyType is a way of replacing Machines.
// +kubebuilder:validation:Enum=RollingUpdate
type RolloutStrategyType string

// RollingUpdate replaces Machines one at a time.
const RollingUpdate RolloutStrategyType = "RollingUpdate"

// RolloutStrategy says how Machines are replaced.
type RolloutStrategy struct {
	// type of the rollout. Defaults to RollingUpdate.
	// +optional
	Type RolloutStrategyType `json:"type,omitempty"`

	// rollingUpdate is the configuration of RollingUpdate.
	// +optional
	RollingUpdate RollingUpdateSpec `json:"rollingUpdate,omitempty,omitzero"`
}

// RollingUpdateSpec is the configuration of RollingUpdate.
type RollingUpdateSpec struct {
	// maxSurge is how many Machines there may be above replicas: 1, the default, or 0. With 0 a Machine is
	// deleted before its replacement is created, which needs three or more replicas.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == 0 || self == 1",message="maxSurge must be the number 0 or 1"
	MaxSurge *intstr.IntOrString `json:"maxSurge,omitempty"`
}

// RemediationSpec says how unhealthy Machines are replaced.
type RemediationSpec struct {
	// maxRetry is how often the replacement of one Machine is tried again. Defaults to no limit.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MaxRetry *int32 `json:"maxRetry,omitempty"`

	// retryPeriodSeconds is the time between two tries. Defaults to 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	RetryPeriodSeconds *int32 `json:"retryPeriodSeconds,omitempty"`

	// minHealthyPeriodSeconds is the time a replacement must be healthy before a new failure starts a new
	// count. Defaults to one hour.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MinHealthyPeriodSeconds *int32 `json:"minHealthyPeriodSeconds,omitempty"`
}

// MachineNamingSpec says how Machines are named.
type MachineNamingSpec struct {
	// template is a Go template with the variables .cluster.name, .kthreesControlPlane.name and .random, which it
	// must contain. Defaults to {{ .kthreesControlPlane.name }}-{{ .random }}. Names are cut to 63 characters.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('\\\\{\\\\{-?\\\\s*\\\\.random\\\\s*-?\\\\}\\\\}')",message="must contain {{ .random }}, or two Machines would get one name"
	Template string `json:"template,omitempty"`
}

// KThreesControlPlaneStatus is the observed state of a K3s control plane.
// +kubebuilder:validation:MinProperties=1
type KThreesControlPlaneStatus struct {
	// conditions represent the observations of the control plane's current state.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// initialization tells Cluster API about the first start.
	// +optional
	Initialization InitializationStatus `json:"initialization,omitempty,omitzero"`

	// selector selects the control plane's Machines, as a string for the scale subresource.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Selector string `json:"selector,omitempty"`

	// replicas is the number of Machines.
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`

	// readyReplicas is the number of Machines with condition Ready.
	// +optional
	ReadyReplicas *int32 `json:"readyReplicas,omitempty"`

	// availableReplicas is the number of Machines with condition Available.
	// +optional
	AvailableReplicas *int32 `json:"availableReplicas,omitempty"`

	// upToDateReplicas is the number of Machines with condition UpToDate.
	// +optional
	UpToDateReplicas *int32 `json:"upToDateReplicas,omitempty"`

	// versions are the versions of the servers, lowest first.
	// +optional
	// +listType=map
	// +listMapKey=version
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	Versions []clusterv1.StatusVersion `json:"versions,omitempty"`

	// version is the lowest version of the servers.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Version string `json:"version,omitempty"`

	// observedGeneration is the latest generation that was reconciled with success.
	// +optional
	// +kubebuilder:validation:Minimum=1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// lastRemediation is the last replacement of an unhealthy Machine.
	// +optional
	LastRemediation LastRemediationStatus `json:"lastRemediation,omitempty,omitzero"`
}

// InitializationStatus is the part of the status that Cluster API's contract asks for.
// +kubebuilder:validation:MinProperties=1
type InitializationStatus struct {
	// controlPlaneInitialized is true once the control plane accepted requests. It never goes back.
	// +optional
	ControlPlaneInitialized *bool `json:"controlPlaneInitialized,omitempty"`
}

// LastRemediationStatus is the last replacement of an unhealthy Machine.
// +kubebuilder:validation:MinProperties=1
type LastRemediationStatus struct {
	// machine is the name of the Machine that was replaced.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Machine string `json:"machine,omitempty"`

	// time of the replacement.
	// +required
	Time metav1.Time `json:"time,omitempty,omitzero"`

	// retryCount is the number of tries since the last healthy period.
	// +required
	// +kubebuilder:validation:Minimum=0
	RetryCount *int32 `json:"retryCount,omitempty"`
}

// +kubebuilder:object:root=true
// +kubebuilder:resource:path=kthreescontrolplanes,shortName=k3cp,scope=Namespaced,categories=cluster-api
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta2=v1beta3"
// +kubebuilder:printcolumn:name="Cluster",type="string",JSONPath=".metadata.labels['cluster\\.x-k8s\\.io/cluster-name']",description="Cluster"
// +kubebuilder:printcolumn:name="Available",type="string",JSONPath=`.status.conditions[?(@.type=="Available")].status`,description="The cluster's API can be used"
// +kubebuilder:printcolumn:name="Desired",type="integer",JSONPath=".spec.replicas",description="Desired number of Machines"
// +kubebuilder:printcolumn:name="Current",type="integer",JSONPath=".status.replicas",description="Number of Machines"
// +kubebuilder:printcolumn:name="Ready",type="integer",JSONPath=".status.readyReplicas",description="Number of ready Machines"
// +kubebuilder:printcolumn:name="Available",type="integer",JSONPath=".status.availableReplicas",description="Number of available Machines"
// +kubebuilder:printcolumn:name="Up-to-date",type="integer",JSONPath=".status.upToDateReplicas",description="Number of Machines that match the spec"
// +kubebuilder:printcolumn:name="Paused",type="string",JSONPath=`.status.conditions[?(@.type=="Paused")].status`,description="Reconciliation paused",priority=10
// +kubebuilder:printcolumn:name="Initialized",type="boolean",JSONPath=".status.initialization.controlPlaneInitialized",description="The control plane accepted requests"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"
// +kubebuilder:printcolumn:name="Version",type="string",JSONPath=".spec.version",description="Desired K3s version"

// KThreesControlPlane is the control plane of a K3s cluster.
type KThreesControlPlane struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state of the control plane.
	// +required
	Spec KThreesControlPlaneSpec `json:"spec,omitempty,omitzero"`

	// status is the observed state of the control plane.
	// +optional
	Status KThreesControlPlaneStatus `json:"status,omitempty,omitzero"`
}

// GetConditions returns the conditions of the KThreesControlPlane.
func (c *KThreesControlPlane) GetConditions() []metav1.Condition {
	return c.Status.Conditions
}

// SetConditions replaces the conditions of the KThreesControlPlane.
func (c *KThreesControlPlane) SetConditions(conditions []metav1.Condition) {
	c.Status.Conditions = conditions
}

// +kubebuilder:object:root=true

// KThreesControlPlaneList is a list of KThreesControlPlanes.
type KThreesControlPlaneList struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard list's metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// items is the list of KThreesControlPlanes.
	Items []KThreesControlPlane `json:"items"`
}

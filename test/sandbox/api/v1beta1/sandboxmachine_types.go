package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// MachineFinalizer keeps a SandboxMachine until its processes and files are gone.
const MachineFinalizer = "sandboxmachine.infrastructure.cluster.x-k8s.io"

// BootstrapSucceededCondition tells how far a machine's bootstrap data has come.
const BootstrapSucceededCondition = "BootstrapSucceeded"

// SandboxMachineSpec is what a machine is to be.
type SandboxMachineSpec struct {
	// providerID is set by the provider: sandbox:///<namespace>/<name>.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	ProviderID string `json:"providerID,omitempty"`
	// preinstalledVersion is the K3s version that the machine's image brings
	// along, with the install script as /opt/install.sh. Default: none, K3s is
	// "downloaded".
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	PreinstalledVersion string `json:"preinstalledVersion,omitempty"`
}

// SandboxMachineStatus is what a machine is.
// +kubebuilder:validation:MinProperties=1
type SandboxMachineStatus struct {
	// conditions: Ready (the machine is on) and BootstrapSucceeded.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// initialization tells Cluster API how far the infrastructure is.
	// +optional
	Initialization Initialization `json:"initialization,omitempty,omitzero"`
	// addresses of the machine: InternalIP and Hostname.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=128
	Addresses []clusterv1.MachineAddress `json:"addresses,omitempty"`
	// failureDomain that the Machine asked for.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	FailureDomain string `json:"failureDomain,omitempty"`
}

// SandboxMachine is a machine of the test world.
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=sandboxmachines,scope=Namespaced,categories=cluster-api
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.metadata.labels['cluster\.x-k8s\.io/cluster-name']`
// +kubebuilder:printcolumn:name="Address",type=string,JSONPath=`.status.addresses[?(@.type=="InternalIP")].address`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Bootstrapped",type=string,JSONPath=`.status.conditions[?(@.type=="BootstrapSucceeded")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type SandboxMachine struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// +optional
	Spec SandboxMachineSpec `json:"spec,omitempty,omitzero"`
	// +optional
	Status SandboxMachineStatus `json:"status,omitempty,omitzero"`
}

// GetConditions returns the conditions.
func (m *SandboxMachine) GetConditions() []metav1.Condition { return m.Status.Conditions }

// SetConditions sets the conditions.
func (m *SandboxMachine) SetConditions(conditions []metav1.Condition) {
	m.Status.Conditions = conditions
}

// SandboxMachineList is a list of SandboxMachines.
// +kubebuilder:object:root=true
type SandboxMachineList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []SandboxMachine `json:"items"`
}

// SandboxMachineTemplate is what SandboxMachines are made from.
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=sandboxmachinetemplates,scope=Namespaced,categories=cluster-api
// +kubebuilder:storageversion
type SandboxMachineTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// +optional
	Spec SandboxMachineTemplateSpec `json:"spec,omitempty,omitzero"`
}

// SandboxMachineTemplateSpec holds the template.
type SandboxMachineTemplateSpec struct {
	// template of the SandboxMachines.
	// +required
	Template SandboxMachineTemplateResource `json:"template"`
}

// SandboxMachineTemplateResource is a SandboxMachine without a name.
type SandboxMachineTemplateResource struct {
	// metadata of the SandboxMachines.
	// +optional
	ObjectMeta clusterv1.ObjectMeta `json:"metadata,omitempty,omitzero"`
	// spec of the SandboxMachines.
	// +optional
	Spec SandboxMachineSpec `json:"spec,omitempty,omitzero"`
}

// SandboxMachineTemplateList is a list of SandboxMachineTemplates.
// +kubebuilder:object:root=true
type SandboxMachineTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []SandboxMachineTemplate `json:"items"`
}

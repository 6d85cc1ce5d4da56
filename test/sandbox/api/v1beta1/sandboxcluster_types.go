package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// ClusterFinalizer keeps a SandboxCluster until its endpoint is closed.
const ClusterFinalizer = "sandboxcluster.infrastructure.cluster.x-k8s.io"

// ReadyCondition of a SandboxCluster and a SandboxMachine.
const ReadyCondition = "Ready"

// SandboxClusterSpec is what a cluster's infrastructure is to be.
type SandboxClusterSpec struct {
	// controlPlaneEndpoint is where the control plane is reached. The provider
	// picks a free address of the world and port 6443 if it is not given.
	// +optional
	ControlPlaneEndpoint clusterv1.APIEndpoint `json:"controlPlaneEndpoint,omitempty,omitzero"`
	// failureDomains that the cluster is to report. They have no effect on
	// where machines run.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	FailureDomains []clusterv1.FailureDomain `json:"failureDomains,omitempty"`
}

// SandboxClusterStatus is what a cluster's infrastructure is.
// +kubebuilder:validation:MinProperties=1
type SandboxClusterStatus struct {
	// conditions: Ready.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// initialization tells Cluster API how far the infrastructure is.
	// +optional
	Initialization Initialization `json:"initialization,omitempty,omitzero"`
	// failureDomains as in the spec.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	FailureDomains []clusterv1.FailureDomain `json:"failureDomains,omitempty"`
}

// Initialization tells Cluster API how far infrastructure is.
// +kubebuilder:validation:MinProperties=1
type Initialization struct {
	// provisioned is true once the infrastructure is there.
	// +optional
	Provisioned *bool `json:"provisioned,omitempty"`
}

// SandboxCluster is the infrastructure of a cluster: an address that leads to
// its control-plane machines.
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=sandboxclusters,scope=Namespaced,categories=cluster-api
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.metadata.labels['cluster\.x-k8s\.io/cluster-name']`
// +kubebuilder:printcolumn:name="Endpoint",type=string,JSONPath=`.spec.controlPlaneEndpoint.host`
// +kubebuilder:printcolumn:name="Provisioned",type=boolean,JSONPath=`.status.initialization.provisioned`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type SandboxCluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// +optional
	Spec SandboxClusterSpec `json:"spec,omitempty,omitzero"`
	// +optional
	Status SandboxClusterStatus `json:"status,omitempty,omitzero"`
}

// GetConditions returns the conditions.
func (c *SandboxCluster) GetConditions() []metav1.Condition { return c.Status.Conditions }

// SetConditions sets the conditions.
func (c *SandboxCluster) SetConditions(conditions []metav1.Condition) {
	c.Status.Conditions = conditions
}

// SandboxClusterList is a list of SandboxClusters.
// +kubebuilder:object:root=true
type SandboxClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []SandboxCluster `json:"items"`
}

// SandboxClusterTemplate is what a ClusterClass makes SandboxClusters from.
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=sandboxclustertemplates,scope=Namespaced,categories=cluster-api
// +kubebuilder:storageversion
type SandboxClusterTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// +optional
	Spec SandboxClusterTemplateSpec `json:"spec,omitempty,omitzero"`
}

// SandboxClusterTemplateSpec holds the template.
type SandboxClusterTemplateSpec struct {
	// template of the SandboxClusters.
	// +required
	Template SandboxClusterTemplateResource `json:"template"`
}

// SandboxClusterTemplateResource is a SandboxCluster without a name.
type SandboxClusterTemplateResource struct {
	// metadata of the SandboxClusters.
	// +optional
	ObjectMeta clusterv1.ObjectMeta `json:"metadata,omitempty,omitzero"`
	// spec of the SandboxClusters.
	// +optional
	Spec SandboxClusterSpec `json:"spec,omitempty,omitzero"`
}

// SandboxClusterTemplateList is a list of SandboxClusterTemplates.
// +kubebuilder:object:root=true
type SandboxClusterTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []SandboxClusterTemplate `json:"items"`
}

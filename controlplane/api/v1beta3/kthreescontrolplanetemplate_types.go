package v1beta3

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
)

// KThreesControlPlaneTemplateSpec is the desired state of a KThreesControlPlaneTemplate.
type KThreesControlPlaneTemplateSpec struct {
	// template is the KThreesControlPlane to be made from this template.
	// +required
	Template KThreesControlPlaneTemplateResource `json:"template,omitempty,omitzero"`
}

// KThreesControlPlaneTemplateResource is a KThreesControlPlane without a name.
type KThreesControlPlaneTemplateResource struct {
	// metadata is copied to the KThreesControlPlanes made from this template.
	// +optional
	ObjectMeta clusterv1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec is the spec of the KThreesControlPlanes made from this template.
	// +optional
	Spec KThreesControlPlaneTemplateResourceSpec `json:"spec,omitempty,omitzero"`
}

// KThreesControlPlaneTemplateResourceSpec is a KThreesControlPlaneSpec without what Cluster API's topology
// controller sets: replicas, version and the infrastructure template.
// +kubebuilder:validation:XValidation:rule="!has(self.kthreesConfigSpec) || !has(self.kthreesConfigSpec.agentConfig) || !has(self.kthreesConfigSpec.agentConfig.nodeName) || self.kthreesConfigSpec.agentConfig.nodeName.contains('{{')",message="every machine needs a name of its own: leave nodeName out, or write an expression such as {{ ds.meta_data.local_hostname }}"
type KThreesControlPlaneTemplateResourceSpec struct {
	// machineTemplate says how the servers' Machines are made.
	// +optional
	MachineTemplate KThreesControlPlaneTemplateMachineTemplate `json:"machineTemplate,omitempty,omitzero"`

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

// KThreesControlPlaneTemplateMachineTemplate says how the servers' Machines are made.
type KThreesControlPlaneTemplateMachineTemplate struct {
	// metadata is kept on the Machines and on their bootstrap and infrastructure objects.
	// +optional
	ObjectMeta clusterv1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec is used for the Machines.
	// +optional
	Spec MachineSettings `json:"spec,omitempty,omitzero"`
}

// +kubebuilder:object:root=true
// +kubebuilder:resource:path=kthreescontrolplanetemplates,shortName=k3cpt,scope=Namespaced,categories=cluster-api
// +kubebuilder:storageversion
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta2=v1beta3"
// +kubebuilder:printcolumn:name="ClusterClass",type="string",JSONPath=`.metadata.ownerReferences[?(@.kind=="ClusterClass")].name`,description="Name of the ClusterClass owning this template"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"

// KThreesControlPlaneTemplate is a template for the control planes of a ClusterClass.
type KThreesControlPlaneTemplate struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state of the KThreesControlPlaneTemplate.
	// +optional
	Spec KThreesControlPlaneTemplateSpec `json:"spec,omitempty,omitzero"`
}

// +kubebuilder:object:root=true

// KThreesControlPlaneTemplateList is a list of KThreesControlPlaneTemplates.
type KThreesControlPlaneTemplateList struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard list's metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// items is the list of KThreesControlPlaneTemplates.
	Items []KThreesControlPlaneTemplate `json:"items"`
}

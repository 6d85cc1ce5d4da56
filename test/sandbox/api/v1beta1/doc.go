// Package v1beta1 is the API of the sandbox infrastructure provider: clusters
// and machines of a test world, after version v1beta2 of the Cluster API contract.
//
// +kubebuilder:object:generate=true
// +groupName=infrastructure.cluster.x-k8s.io
package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion of the kinds in this package.
var GroupVersion = schema.GroupVersion{Group: "infrastructure.cluster.x-k8s.io", Version: "v1beta1"}

// AddToScheme registers the kinds of this package.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&SandboxCluster{}, &SandboxClusterList{}, &SandboxClusterTemplate{}, &SandboxClusterTemplateList{},
		&SandboxMachine{}, &SandboxMachineList{}, &SandboxMachineTemplate{}, &SandboxMachineTemplateList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}

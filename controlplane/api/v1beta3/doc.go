// Package v1beta3 contains the API of the K3s control plane provider: KThreesControlPlane and
// KThreesControlPlaneTemplate.
//
// +kubebuilder:object:generate=true
// +groupName=controlplane.cluster.x-k8s.io
package v1beta3

// Package v1beta3 contains the API of the K3s bootstrap provider: KThreesConfig, which turns a Machine into
// a K3s node, and KThreesConfigTemplate.
//
// +kubebuilder:object:generate=true
// +groupName=bootstrap.cluster.x-k8s.io
package v1beta3

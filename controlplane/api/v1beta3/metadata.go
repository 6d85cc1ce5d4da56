package v1beta3

import clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

const (
	// Finalizer keeps a KThreesControlPlane until its Machines are gone.
	Finalizer = "kthrees.controlplane.cluster.x-k8s.io"

	// ManagedLabel is the mark of this operator on each Secret that it created. Only the data of marked Secrets
	// was made by the operator; without the mark only metadata is ever written.
	ManagedLabel = "controlplane.cluster.x-k8s.io/k3s-managed"

	// InitializedAnnotation on a KThreesControlPlane is the evidence that its cluster was founded. It is written
	// before key material is first used and survives backups, which drop the status. Its value is JSON with the
	// time, the fingerprints of the certificate authorities and a salted digest of the token.
	InitializedAnnotation = "controlplane.cluster.x-k8s.io/k3s-initialized"

	// AllowInitAnnotation on a KThreesControlPlane, set by a human to "true", lets the operator found the cluster
	// anew although there is evidence that it existed, for example after all servers were lost. The operator
	// removes it once it was used.
	AllowInitAnnotation = "controlplane.cluster.x-k8s.io/k3s-allow-init"

	// PreTerminateHookAnnotation on each control plane Machine holds back the deletion of its infrastructure until
	// its etcd member was removed. Servers with an external datastore don't have it.
	PreTerminateHookAnnotation = clusterv1.PreTerminateDeleteHookAnnotationPrefix + "/k3s-etcd"

	// EtcdMemberAnnotation on a control plane Machine records the name of its etcd member.
	EtcdMemberAnnotation = "controlplane.cluster.x-k8s.io/k3s-etcd-member"

	// StandInLabel marks a Node of the workload cluster that stands in for a lost one, so that K3s removes its etcd
	// member. It is also the key of its taint.
	StandInLabel = "controlplane.cluster.x-k8s.io/k3s-stand-in"

	// RemediationInProgressAnnotation on a KThreesControlPlane follows the replacement of an unhealthy Machine, from
	// before the deletion until there are as many Machines as replicas. Its value is JSON with the Machine, the time
	// and the number of retries.
	RemediationInProgressAnnotation = "controlplane.cluster.x-k8s.io/remediation-in-progress"

	// RemediationForAnnotation on a Machine holds the record of the remediation that it is a replacement of, so that
	// failures in a row are counted.
	RemediationForAnnotation = "controlplane.cluster.x-k8s.io/remediation-for"
)

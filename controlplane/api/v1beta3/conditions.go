package v1beta3

import clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

// Conditions of a KThreesControlPlane.
const (
	// AvailableCondition is true when the cluster's API can be used and etcd has its quorum.
	AvailableCondition = clusterv1.AvailableCondition

	// InitializedCondition is true once the control plane accepted requests for the first time.
	InitializedCondition = "Initialized"

	// TokenAvailableCondition is true when the join token exists and is the one that the servers accept.
	TokenAvailableCondition = "TokenAvailable"

	// CertificatesAvailableCondition is true when all certificate authorities exist.
	CertificatesAvailableCondition = "CertificatesAvailable"

	// EtcdClusterHealthyCondition is true when every etcd member is a healthy voter with a Machine.
	EtcdClusterHealthyCondition = "EtcdClusterHealthy"

	// MachinesReadyCondition aggregates the Ready conditions of the Machines.
	MachinesReadyCondition = clusterv1.MachinesReadyCondition

	// MachinesUpToDateCondition aggregates the UpToDate conditions of the Machines.
	MachinesUpToDateCondition = clusterv1.MachinesUpToDateCondition

	// RollingOutCondition is true while Machines are being replaced.
	RollingOutCondition = clusterv1.RollingOutCondition

	// ScalingUpCondition is true while there are fewer Machines than replicas.
	ScalingUpCondition = clusterv1.ScalingUpCondition

	// ScalingDownCondition is true while there are more Machines than replicas.
	ScalingDownCondition = clusterv1.ScalingDownCondition

	// RemediatingCondition is true while an unhealthy Machine is being replaced.
	RemediatingCondition = clusterv1.RemediatingCondition

	// DeletingCondition is true while the control plane is being deleted.
	DeletingCondition = clusterv1.DeletingCondition
)

// Conditions that the control plane sets on its Machines.
const (
	// MachineUpToDateCondition is true when the Machine matches the control plane's spec.
	MachineUpToDateCondition = clusterv1.MachineUpToDateCondition

	// MachineEtcdMemberHealthyCondition is true when the Machine's etcd member is a healthy voter.
	MachineEtcdMemberHealthyCondition = "EtcdMemberHealthy"
)

// Reasons that only this provider uses. The others are those of Cluster API.
const (
	// TokenLostReason says that the token is gone and where to find it.
	TokenLostReason = "TokenLost"

	// TokenDriftedReason says that the servers refuse the token in the Secret.
	TokenDriftedReason = "TokenDrifted"

	// TokenUnverifiedReason says that the token differs from the machines' and no server could be asked.
	TokenUnverifiedReason = "TokenUnverified"

	// TokenContestedReason says that another controller keeps taking the Secret.
	TokenContestedReason = "TokenContested"

	// TokenInvalidReason says that the Secret has no token or one that K3s refuses.
	TokenInvalidReason = "TokenInvalid"

	// ForeignClusterReason says that the Cluster names another control plane.
	ForeignClusterReason = "ForeignCluster"

	// ForeignMachinesReason says that another controller has control plane Machines of the Cluster.
	ForeignMachinesReason = "ForeignMachines"

	// AdoptionFailedReason says that a control plane Machine without a controller can't be adopted.
	AdoptionFailedReason = "AdoptionFailed"

	// CertificatesLostReason says that certificate authorities of an initialized cluster are gone.
	CertificatesLostReason = "CertificatesLost"

	// CertificatesIncompleteReason says that some certificate authorities exist and others don't.
	CertificatesIncompleteReason = "CertificatesIncomplete"

	// CertificatesInvalidReason says that a Secret holds no usable certificate authority.
	CertificatesInvalidReason = "CertificatesInvalid"

	// CertificatesExpireSoonReason says that a certificate authority, or a kubeconfig that can't be renewed, expires
	// within 90 days.
	CertificatesExpireSoonReason = "CertificatesExpireSoon"

	// ForeignSecretReason says that a Secret of another owner has the name of one of ours.
	ForeignSecretReason = "ForeignSecret"

	// InitializedReason and NotInitializedReason are the reasons of the Initialized condition.
	InitializedReason    = "Initialized"
	NotInitializedReason = "NotInitialized"

	// EtcdHealthyReason, EtcdNotHealthyReason and EtcdUnknownReason are the reasons of the etcd conditions.
	EtcdHealthyReason    = "Healthy"
	EtcdNotHealthyReason = "NotHealthy"
	EtcdUnknownReason    = "HealthUnknown"

	// ConnectionDownReason says that the workload cluster can't be reached.
	ConnectionDownReason = "ConnectionDown"

	// WaitingForWorkersDeletionReason and WaitingForMachinesDeletionReason are reasons of the Deleting condition.
	WaitingForWorkersDeletionReason  = "WaitingForWorkersDeletion"
	WaitingForMachinesDeletionReason = "WaitingForMachineDeletion"

	// DeletionCompletedReason says that nothing is left to delete.
	DeletionCompletedReason = "DeletionCompleted"

	// CannotBeRemediatedReason says why a human must look after an unhealthy Machine.
	CannotBeRemediatedReason = "CannotBeRemediated"

	// RemediationDeferredReason says what the replacement of an unhealthy Machine waits for.
	RemediationDeferredReason = "RemediationDeferred"

	// MachineDeletingReason says that an unhealthy Machine is being deleted, to be replaced.
	MachineDeletingReason = "MachineDeleting"
)

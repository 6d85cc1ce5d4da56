package v1beta3

import clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

// Conditions of a KThreesConfig.
const (
	// ReadyCondition summarizes the other conditions; Cluster API mirrors it to the Machine.
	ReadyCondition = clusterv1.ReadyCondition

	// DataSecretAvailableCondition is true when the Secret with the bootstrap data exists.
	DataSecretAvailableCondition = "DataSecretAvailable"

	// CertificatesAvailableCondition is true when the certificate authorities that the machine needs were found.
	CertificatesAvailableCondition = "CertificatesAvailable"

	// TokenAvailableCondition is true when the join token that the machine needs was found.
	TokenAvailableCondition = "TokenAvailable"
)

// Reasons of the conditions of a KThreesConfig.
const (
	// AvailableReason says that what the condition speaks of exists.
	AvailableReason = clusterv1.AvailableReason

	// NotAvailableReason says that what the condition speaks of doesn't exist.
	NotAvailableReason = clusterv1.NotAvailableReason

	// InternalErrorReason says that the state could not be read or written; it is tried again.
	InternalErrorReason = clusterv1.InternalErrorReason

	// WaitingForInfrastructureReason says that the cluster's infrastructure isn't provisioned yet.
	WaitingForInfrastructureReason = "WaitingForClusterInfrastructureReady"

	// WaitingForControlPlaneReason says that the machine can only join once the control plane is initialized.
	WaitingForControlPlaneReason = "WaitingForControlPlaneInitialized"

	// WaitingForEndpointReason says that the cluster has no control plane endpoint yet.
	WaitingForEndpointReason = "WaitingForControlPlaneEndpoint"

	// WaitingForInitLockReason says that another machine is founding the cluster.
	WaitingForInitLockReason = "WaitingForInitLock"

	// WaitingForTokenReason says that the control plane hasn't provided the join token yet.
	WaitingForTokenReason = "WaitingForToken"

	// WaitingForCertificatesReason says that the control plane hasn't provided the certificate authorities yet.
	WaitingForCertificatesReason = "WaitingForCertificates"

	// WaitingForVersionReason says that the Machine or MachinePool has no version.
	WaitingForVersionReason = "WaitingForVersion"

	// WaitingForSecretReason says that a Secret that the spec names, or its key, doesn't exist.
	WaitingForSecretReason = "WaitingForSecret"

	// InvalidConfigReason says that the spec can't be rendered and what to write instead.
	InvalidConfigReason = "InvalidConfig"

	// ForeignSecretReason says that a Secret of another owner has the name of the bootstrap data Secret.
	ForeignSecretReason = "ForeignSecret"

	// DataSecretLostReason says that the bootstrap data was created once and is gone; it isn't made again.
	DataSecretLostReason = "DataSecretLost"
)

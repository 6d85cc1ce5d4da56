package controllers

import (
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	corev1 "k8s.io/api/core/v1"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
)

// scope is what a reconcile is about, as it was read at the start.
type scope struct {
	config  *bootstrapv1.KThreesConfig
	owner   *owner
	cluster *clusterv1.Cluster

	// secret has the name of the config's bootstrap data; nil if there is none.
	secret *corev1.Secret
}

// settled says whether the owner has, or is about to take, its bootstrap data: they are never made again.
func (s *scope) settled() bool {
	return s.owner.dataSecretName != "" || (s.config.Status.DataSecretName != "" && s.secret != nil)
}

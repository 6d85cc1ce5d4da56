package controllers

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
	"github.com/capk3s/capk3s/pkg/certs"
	"github.com/capk3s/capk3s/pkg/token"
)

// publicKey is the key of the one thing in a Secret of Cluster API that isn't secret: a certificate.
const publicKey = corev1.TLSCertKey

// keptNames are the names of the Secrets that a control plane keeps for its cluster.
func keptNames(cluster string) []string {
	return append(certs.SecretNames(cluster), token.SecretName(cluster))
}

// nameIsFree refuses bootstrap data with the name that a Secret of a control plane has, or may have one day: of this
// cluster or of any other in the namespace.
func nameIsFree(s *scope) *refusal {
	for _, suffix := range keptNames("") {
		if strings.HasSuffix(s.config.Name, suffix) {
			return refuse(bootstrapv1.ForeignSecretReason,
				"The bootstrap data can't have the name of this config: a Secret whose name ends in %s is a control plane's. Give the config another name", suffix)
		}
	}
	return nil
}

// isKey says whether a value holds a key of some cluster: a token, a CA's key, a kubeconfig, or bootstrap data, which
// hold a token in turn. All of them have Cluster API's type, unless they are a user's.
func isKey(secret *corev1.Secret, key string) bool {
	cluster := secret.Labels[clusterv1.ClusterNameLabel]
	return key != publicKey && (secret.Type == clusterv1.ClusterSecretType || slices.Contains(keptNames(cluster), secret.Name))
}

package controllers

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"sigs.k8s.io/cluster-api/util/conditions"

	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
	"github.com/capk3s/capk3s/pkg/certs"
)

// expireSoon names the Secrets whose certificates expire while there is still time to do something about it.
func (s *scope) expireSoon() []string {
	soon := s.now.Add(certs.ExpiryNotice)
	expiring := map[string]time.Time{}
	if s.certificates != nil {
		for purpose, expiry := range s.certificates.Expiring(soon) {
			expiring[purpose.SecretName(s.cluster.Name)] = expiry
		}
	}
	if !s.kubeconfigExpiry.IsZero() && s.kubeconfigExpiry.Before(soon) {
		expiring[certs.KubeconfigSecretName(s.cluster.Name)] = s.kubeconfigExpiry
	}
	var messages []string
	for _, secret := range slices.Sorted(maps.Keys(expiring)) {
		messages = append(messages, fmt.Sprintf("Secret %s: a certificate expires on %s", secret, expiring[secret].UTC().Format(time.DateOnly)))
	}
	return messages
}

// tellExpiry warns once of certificates that expire soon. The condition stays true, which is easily overlooked.
func (r *Reconciler) tellExpiry(s *scope) {
	before, now := conditions.Get(s.controlPlane, controlplanev1.CertificatesAvailableCondition), certificatesCondition(s)
	if now.Reason == controlplanev1.CertificatesExpireSoonReason && (before == nil || before.Reason != now.Reason) {
		r.event(s, "Warning", now.Reason, "Wait", "%s", now.Message)
	}
}

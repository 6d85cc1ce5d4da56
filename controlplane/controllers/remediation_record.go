package controllers

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
)

// remediationRecord follows the replacement of an unhealthy Machine: on the control plane while the replacement is
// owed, then on the replacement. The form is that of KubeadmControlPlane.
type remediationRecord struct {
	// Machine is the name of the unhealthy Machine.
	Machine string `json:"machine"`
	// Timestamp is when its deletion was decided.
	Timestamp metav1.Time `json:"timestamp"`
	// RetryCount counts the replacements in a row that became unhealthy too.
	RetryCount int32 `json:"retryCount"`
}

// parseRemediation decodes an annotation's value; nil when there is none or a human broke it.
func parseRemediation(value string) *remediationRecord {
	record := &remediationRecord{}
	if json.Unmarshal([]byte(value), record) != nil || record.Machine == "" {
		return nil
	}
	return record
}

// remediationOwed is the record of a remediation whose replacement is still to be made.
func remediationOwed(controlPlane *controlplanev1.KThreesControlPlane) *remediationRecord {
	return parseRemediation(controlPlane.Annotations[controlplanev1.RemediationInProgressAnnotation])
}

// remediationFor is the record of the remediation that a Machine is a replacement of.
func remediationFor(machine *clusterv1.Machine) *remediationRecord {
	return parseRemediation(machine.Annotations[controlplanev1.RemediationForAnnotation])
}

// lastRemediation is the newest record that there is, or nil.
func lastRemediation(s *scope) *remediationRecord {
	last := remediationOwed(s.controlPlane)
	for _, machine := range s.machines {
		if record := remediationFor(machine); record != nil && (last == nil || record.Timestamp.After(last.Timestamp.Time)) {
			last = record
		}
	}
	return last
}

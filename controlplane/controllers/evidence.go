package controllers

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/collections"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
	"github.com/capk3s/capk3s/pkg/token"
)

// saltBytes is the length of the salt of the token's digest.
const saltBytes = 16

// evidence is the value of the annotation that proves that a cluster was founded.
type evidence struct {
	// Time of the founding.
	Time metav1.Time `json:"time"`
	// Machine is the name of the Machine that founds the cluster.
	Machine string `json:"machine"`
	// Anew says that a human let a cluster that was founded before be founded again.
	Anew bool `json:"anew,omitempty"`
	// Certificates are the fingerprints of the CAs' public keys, by the purpose of the CA.
	Certificates map[string]string `json:"certificates"`
	// Token is a slow, salted digest that tells whether a token is the one of the founding.
	Token string `json:"token"`
}

// evidenceOf says by what it is known that the cluster was founded; empty when nothing says so. Metadata and
// specs survive backups, so that a missing status proves nothing.
func evidenceOf(cluster *clusterv1.Cluster, controlPlane *controlplanev1.KThreesControlPlane, machines collections.Machines) string {
	switch {
	case controlPlane.Annotations[controlplanev1.InitializedAnnotation] != "":
		return "the KThreesControlPlane's annotation " + controlplanev1.InitializedAnnotation
	case ptr.Deref(controlPlane.Status.Initialization.ControlPlaneInitialized, false):
		return "the KThreesControlPlane's status"
	case clusterInitialized(cluster):
		return "the Cluster's condition " + clusterv1.ClusterControlPlaneInitializedCondition
	}
	for _, name := range machines.Names() {
		machine := machines[name]
		if machine.Spec.Bootstrap.DataSecretName != nil || machine.Spec.ProviderID != "" || machine.Status.NodeRef.IsDefined() {
			return "Machine " + name
		}
	}
	return ""
}

// clusterInitialized says whether Cluster API saw the control plane accept requests.
func clusterInitialized(cluster *clusterv1.Cluster) bool {
	return conditions.IsTrue(cluster, clusterv1.ClusterControlPlaneInitializedCondition)
}

// confirmNotInitialized reads without a cache what evidenceOf looks at. Not initialized is believed only so.
func (r *Reconciler) confirmNotInitialized(ctx context.Context, s *scope) error {
	cluster, controlPlane := &clusterv1.Cluster{}, &controlplanev1.KThreesControlPlane{}
	if err := r.APIReader.Get(ctx, client.ObjectKeyFromObject(s.cluster), cluster); err != nil {
		return fmt.Errorf("reading Cluster %s: %w", s.cluster.Name, err)
	}
	if err := r.APIReader.Get(ctx, client.ObjectKeyFromObject(s.controlPlane), controlPlane); err != nil {
		return fmt.Errorf("reading KThreesControlPlane %s: %w", s.controlPlane.Name, err)
	}
	machines, err := listMachines(ctx, r.APIReader, cluster)
	if err != nil {
		return err
	}
	s.evidence = evidenceOf(cluster, controlPlane, machines)
	s.initialized = s.evidence != ""
	return nil
}

// recordedEvidence decodes the annotation; nil when there is none or a human broke it.
func recordedEvidence(controlPlane *controlplanev1.KThreesControlPlane) *evidence {
	e := &evidence{}
	if json.Unmarshal([]byte(controlPlane.Annotations[controlplanev1.InitializedAnnotation]), e) != nil {
		return nil
	}
	return e
}

// recordedFingerprints are the fingerprints of the CAs that the cluster was founded with; nil when none were recorded.
func recordedFingerprints(controlPlane *controlplanev1.KThreesControlPlane) map[string]string {
	if recorded := recordedEvidence(controlPlane); recorded != nil {
		return recorded.Certificates
	}
	return nil
}

// recordEvidence writes the annotation before key material is first used.
func (r *Reconciler) recordEvidence(ctx context.Context, s *scope, machine string) (*evidence, error) {
	salt := make([]byte, saltBytes)
	if _, err := rand.Read(salt); err != nil {
		return nil, fmt.Errorf("making a salt: %w", err)
	}
	recorded := &evidence{
		Time:         metav1.NewTime(s.now.Truncate(time.Second)),
		Machine:      machine,
		Anew:         s.initialized,
		Certificates: s.certificates.Fingerprints(),
		Token:        token.Digest(s.token.Server, salt),
	}
	value, err := json.Marshal(recorded)
	if err != nil {
		return nil, fmt.Errorf("encoding the evidence: %w", err)
	}
	err = r.annotate(ctx, s, func(annotations map[string]string) {
		annotations[controlplanev1.InitializedAnnotation] = string(value)
		delete(annotations, controlplanev1.AllowInitAnnotation)
	})
	if err != nil {
		return nil, fmt.Errorf("recording that the cluster is founded: %w", err)
	}
	return recorded, nil
}

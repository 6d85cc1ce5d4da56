package custody

import (
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"

	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
)

const (
	// takenAnnotation holds the time at which this operator last replaced a foreign controller reference.
	takenAnnotation = "controlplane.cluster.x-k8s.io/k3s-taken"

	// takeInterval is the time between two such replacements.
	takeInterval = 10 * time.Minute
)

// plan is how the metadata of a Secret must change.
type plan struct {
	references

	// labels to be set.
	labels map[string]string
}

func (p plan) empty() bool { return !p.changed && len(p.labels) == 0 }

// planFor says how the metadata of a Secret must change. A Secret of a type other than Cluster API's is the user's:
// it gets the labels by which it is found and moved, and no owner. One to be marked is ours whatever its type.
func planFor(secret *corev1.Secret, ours metav1.OwnerReference, cluster string, mark bool) plan {
	p := plan{labels: missingLabels(secret.Labels, cluster)}
	if mark && !IsMarked(secret) {
		p.labels[controlplanev1.ManagedLabel] = ""
	}
	if mark || Owned(secret) {
		p.references = planReferences(secret.OwnerReferences, ours)
	}
	return p
}

// Owned says whether a Secret may be owned by a control plane: it has Cluster API's type or our mark. Others belong to
// the user, who keeps them when the cluster goes.
func Owned(secret *corev1.Secret) bool {
	return secret.Type == clusterv1.ClusterSecretType || IsMarked(secret)
}

func missingLabels(labels map[string]string, cluster string) map[string]string {
	missing := map[string]string{}
	if labels[clusterv1.ClusterNameLabel] != cluster {
		missing[clusterv1.ClusterNameLabel] = cluster
	}
	if _, ok := labels[clusterctlv1.ClusterctlMoveLabel]; !ok {
		missing[clusterctlv1.ClusterctlMoveLabel] = ""
	}
	return missing
}

// apply changes the metadata of a Secret as planned.
func (p plan) apply(secret *corev1.Secret, now time.Time) {
	if p.changed {
		secret.OwnerReferences = p.wanted
	}
	if secret.Labels == nil {
		secret.Labels = map[string]string{}
	}
	maps.Copy(secret.Labels, p.labels)
	if !p.takes {
		return
	}
	if secret.Annotations == nil {
		secret.Annotations = map[string]string{}
	}
	secret.Annotations[takenAnnotation] = now.UTC().Format(time.RFC3339)
}

// untilNextTake returns how long a foreign controller must be left alone because it was replaced a short time ago,
// or zero.
func untilNextTake(secret *corev1.Secret, now time.Time) time.Duration {
	taken, err := time.Parse(time.RFC3339, secret.Annotations[takenAnnotation])
	if err != nil {
		return 0
	}
	return remaining(taken, now)
}

func remaining(taken, now time.Time) time.Duration {
	wait := taken.Add(takeInterval).Sub(now)
	if wait <= 0 || wait > 2*takeInterval { // A time in the far future is a clock's error.
		return 0
	}
	return wait
}

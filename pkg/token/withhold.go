package token

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capk3s/capk3s/pkg/custody"
)

// withheldAnnotation on the token's Secret keeps [Lookup] from giving the token to machines. Its value is the reason.
const withheldAnnotation = "controlplane.cluster.x-k8s.io/k3s-token-withheld"

// withhold records on the Secret whether machines may be given its token; an empty reason means that they may. A
// Secret that is the user's isn't written to.
func (r *reconciler) withhold(ctx context.Context, secret *corev1.Secret, reason string) error {
	if !custody.Owned(secret) || secret.Annotations[withheldAnnotation] == reason {
		return nil
	}
	after := secret.DeepCopy()
	if after.Annotations == nil {
		after.Annotations = map[string]string{}
	}
	after.Annotations[withheldAnnotation] = reason
	if reason == "" {
		delete(after.Annotations, withheldAnnotation)
	}
	patch := client.MergeFromWithOptions(secret, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Patch(ctx, after, patch); err != nil {
		return fmt.Errorf("annotating Secret %s: %w", secret.Name, err)
	}
	return nil
}

// checkWithheld returns an [*Error] when the control plane holds the token back.
func checkWithheld(secret *corev1.Secret) error {
	reason := secret.Annotations[withheldAnnotation]
	if reason == "" {
		return nil
	}
	return custody.Errorf(reason, "the control plane holds back the token in Secret %s; the condition TokenAvailable of the KThreesControlPlane says why",
		secret.Name)
}

package plugin

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capk3s/capk3s/pkg/certs"
	"github.com/capk3s/capk3s/pkg/token"
)

// kept is a Secret in custody, without anything of its values.
type kept struct {
	Secret string `json:"secret"`
	Exists bool   `json:"exists"`

	// Controller is the kind and name of the Secret's controller; empty when it has none.
	Controller string `json:"controller,omitempty"`

	// Controlled says whether the controller is the control plane, as it lives now.
	Controlled bool `json:"controlledByControlPlane"`

	// Expires is when the first of the certificates does.
	Expires *time.Time `json:"expires,omitempty"`
}

// custody looks at each Secret that a cluster may have.
func (s *subject) custody(ctx context.Context) ([]kept, error) {
	var all []kept
	for _, name := range append([]string{token.SecretName(s.cluster.Name)}, certs.SecretNames(s.cluster.Name)...) {
		secret := &corev1.Secret{}
		err := s.client.Get(ctx, client.ObjectKey{Namespace: s.cluster.Namespace, Name: name}, secret)
		switch {
		case apierrors.IsNotFound(err):
			all = append(all, kept{Secret: name})
			continue
		case err != nil:
			return nil, fmt.Errorf("reading Secret %s/%s: %w", s.cluster.Namespace, name, err)
		}
		k := kept{Secret: name, Exists: true, Controlled: metav1.IsControlledBy(secret, s.controlPlane)}
		if controller := metav1.GetControllerOf(secret); controller != nil {
			k.Controller = controller.Kind + "/" + controller.Name
		}
		expiry := certs.BundleExpiry(secret.Data[corev1.TLSCertKey])
		if name == certs.KubeconfigSecretName(s.cluster.Name) {
			expiry = certs.KubeconfigSecretExpiry(secret)
		}
		if !expiry.IsZero() {
			expiry = expiry.UTC()
			k.Expires = &expiry
		}
		all = append(all, k)
	}
	return all, nil
}

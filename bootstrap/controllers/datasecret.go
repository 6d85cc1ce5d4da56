package controllers

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
)

const (
	// dataLabel marks the Secrets that this controller made, so that it knows them without their owner reference.
	dataLabel = "bootstrap.cluster.x-k8s.io/k3s-data"

	valueKey  = "value"
	formatKey = "format"
)

// readDataSecret returns the Secret of that name, or nil. The cache knows only Secrets with a cluster's label, so
// absence is asked of the API server.
func (r *Reconciler) readDataSecret(ctx context.Context, key client.ObjectKey) (*corev1.Secret, error) {
	secret, err := r.readSecret(ctx, key)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return secret, err
}

// readSecret reads from the cache, and what isn't there from the API server.
func (r *Reconciler) readSecret(ctx context.Context, key client.ObjectKey) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	err := r.Client.Get(ctx, key, secret)
	if apierrors.IsNotFound(err) {
		err = r.APIReader.Get(ctx, key, secret)
	}
	if err != nil {
		return nil, fmt.Errorf("reading Secret %s: %w", key.Name, err)
	}
	return secret, nil
}

// isOurs says whether the Secret holds bootstrap data of the config: after a restore its owner reference may be of an
// older life of the config, or gone.
func isOurs(secret *corev1.Secret, config *bootstrapv1.KThreesConfig, cluster string) bool {
	if secret.Type != clusterv1.ClusterSecretType || secret.Labels[clusterv1.ClusterNameLabel] != cluster {
		return false
	}
	if controller := metav1.GetControllerOf(secret); controller != nil {
		return refersTo(*controller, config)
	}
	_, marked := secret.Labels[dataLabel]
	return marked
}

// refersTo says whether a reference is to the config, whatever its UID.
func refersTo(ref metav1.OwnerReference, config *bootstrapv1.KThreesConfig) bool {
	group, err := schema.ParseGroupVersion(ref.APIVersion)
	return err == nil && group.Group == bootstrapv1.GroupVersion.Group && ref.Kind == configKind && ref.Name == config.Name
}

func foreign(secret *corev1.Secret) *refusal {
	holder := "nobody"
	if controller := metav1.GetControllerOf(secret); controller != nil {
		holder = controller.Kind + " " + controller.Name
	}
	return refuse(bootstrapv1.ForeignSecretReason, "Secret %s isn't bootstrap data of this config (it is controlled by %s) and is left as it is: "+
		"rename it, or delete it", secret.Name, holder)
}

// ownedReferences puts the config's controller reference in the place of those of its older lives.
func ownedReferences(refs []metav1.OwnerReference, config *bootstrapv1.KThreesConfig) []metav1.OwnerReference {
	ours := *metav1.NewControllerRef(config, bootstrapv1.GroupVersion.WithKind(configKind))
	wanted := make([]metav1.OwnerReference, 0, len(refs)+1)
	placed := false
	for _, ref := range refs {
		switch {
		case !refersTo(ref, config):
			wanted = append(wanted, ref)
		case !placed:
			wanted = append(wanted, ours)
			placed = true
		}
	}
	if !placed {
		wanted = append(wanted, ours)
	}
	return wanted
}

// owned returns the Secret with what ties it to the config put right.
func owned(secret *corev1.Secret, config *bootstrapv1.KThreesConfig) *corev1.Secret {
	wanted := secret.DeepCopy()
	wanted.OwnerReferences = ownedReferences(secret.OwnerReferences, config)
	metav1.SetMetaDataLabel(&wanted.ObjectMeta, dataLabel, "")
	return wanted
}

// writeDataSecret creates the Secret with the bootstrap data, or brings one up to date that no machine has used.
func (r *Reconciler) writeDataSecret(ctx context.Context, s *scope, data []byte) error {
	content := map[string][]byte{valueKey: data, formatKey: []byte(formatOf(&s.config.Spec))}
	if s.secret != nil {
		wanted := owned(s.secret, s.config)
		wanted.Data = content
		if err := r.patchSecret(ctx, s.secret, wanted); err != nil {
			return err
		}
		s.secret = wanted
		return nil
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       s.config.Namespace,
			Name:            s.config.Name,
			Labels:          map[string]string{clusterv1.ClusterNameLabel: s.cluster.Name, dataLabel: ""},
			OwnerReferences: ownedReferences(nil, s.config),
		},
		Type: clusterv1.ClusterSecretType,
		Data: content,
	}
	if err := r.Client.Create(ctx, secret); err != nil {
		return fmt.Errorf("creating Secret %s: %w", secret.Name, err)
	}
	s.secret = secret
	return nil
}

func (r *Reconciler) patchSecret(ctx context.Context, current, wanted *corev1.Secret) error {
	if equality.Semantic.DeepEqual(current.OwnerReferences, wanted.OwnerReferences) &&
		maps.Equal(current.Labels, wanted.Labels) && equality.Semantic.DeepEqual(current.Data, wanted.Data) {
		return nil
	}
	patch := client.MergeFromWithOptions(current, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Patch(ctx, wanted, patch); err != nil {
		return fmt.Errorf("patching Secret %s: %w", wanted.Name, err)
	}
	return nil
}

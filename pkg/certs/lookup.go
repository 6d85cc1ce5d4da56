package certs

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
	"github.com/capk3s/capk3s/pkg/custody"
)

const (
	certKey = "tls.crt"
	keyKey  = "tls.key"
)

// Lookup reads the key pairs of a cluster, without the root; it writes nothing and makes nothing. While one of them
// is missing, the error is NotFound in the sense of apierrors.IsNotFound. A Secret that can't be used gives an
// [*Error].
func Lookup(ctx context.Context, reader client.Reader, cluster client.ObjectKey) (*Set, error) {
	found := map[Purpose]*corev1.Secret{}
	for _, purpose := range full {
		secret := &corev1.Secret{}
		key := client.ObjectKey{Namespace: cluster.Namespace, Name: purpose.SecretName(cluster.Name)}
		err := reader.Get(ctx, key, secret)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading Secret %s: %w", key.Name, err)
		}
		found[purpose] = secret
	}
	if missing := missingOf(required(found, nil), found); len(missing) > 0 {
		name := missing[0].SecretName(cluster.Name)
		return nil, fmt.Errorf("reading Secret %s: %w", name, apierrors.NewNotFound(corev1.Resource("secrets"), name))
	}
	return setOf(found, time.Now())
}

// LookupPair reads one key pair of a cluster, for what can be done while others are missing. The errors are those of
// [Lookup].
func LookupPair(ctx context.Context, reader client.Reader, cluster client.ObjectKey, purpose Purpose) (KeyPair, error) {
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: cluster.Namespace, Name: purpose.SecretName(cluster.Name)}
	if err := reader.Get(ctx, key, secret); err != nil {
		return KeyPair{}, fmt.Errorf("reading Secret %s: %w", key.Name, err)
	}
	return fromSecret(purpose, secret, time.Now())
}

// setOf reads the key pairs of Secrets.
func setOf(secrets map[Purpose]*corev1.Secret, now time.Time) (*Set, error) {
	pairs := make(map[Purpose]KeyPair, len(secrets))
	for _, purpose := range slices.Sorted(maps.Keys(secrets)) {
		pair, err := fromSecret(purpose, secrets[purpose], now)
		if err != nil {
			return nil, err
		}
		pairs[purpose] = pair
	}
	return newSet(pairs)
}

// fromSecret reads a key pair, or says whose Secret it is and what is wrong with it.
func fromSecret(purpose Purpose, secret *corev1.Secret, now time.Time) (KeyPair, error) {
	pair := KeyPair{Cert: secret.Data[certKey], Key: secret.Data[keyKey]}
	if len(pair.Cert) == 0 && len(pair.Key) == 0 && len(secret.Data) > 0 && !custody.IsMarked(secret) {
		return KeyPair{}, foreign(secret)
	}
	checked, err := pair.checked(purpose, now)
	if err != nil {
		return KeyPair{}, custody.Errorf(controlplanev1.CertificatesInvalidReason,
			"Secret %s can't be used: %v. Put the certificate authority that the cluster uses into it, as PEM under %s and %s",
			secret.Name, err, certKey, keyKey)
	}
	return checked, nil
}

func foreign(secret *corev1.Secret) error {
	owner := "somebody else"
	if controller := metav1.GetControllerOf(secret); controller != nil {
		owner = controller.Kind + " " + controller.Name
	}
	return custody.Errorf(controlplanev1.ForeignSecretReason,
		"Secret %s holds other data (%s) than a certificate authority and belongs to %s; it is left as it is. Two objects want one name: rename the Cluster or the other object",
		secret.Name, strings.Join(slices.Sorted(maps.Keys(secret.Data)), ", "), owner)
}

// required returns what a cluster must have, judging by the fingerprints that were recorded when it was founded, else
// by what there is. A cluster that has nothing but CAs of an older provider, none of them made here, needs no more
// than that provider made: K3s made the rest itself.
func required(found map[Purpose]*corev1.Secret, recorded map[string]string) []Purpose {
	if recorded[string(ServerCA)] != "" {
		return slices.DeleteFunc(slices.Clone(full), func(p Purpose) bool { return recorded[string(p)] == "" })
	}
	if len(found) == 0 {
		return full
	}
	for purpose, secret := range found {
		if custody.IsMarked(secret) || !slices.Contains(legacy, purpose) {
			return full
		}
	}
	return legacy
}

func missingOf(purposes []Purpose, found map[Purpose]*corev1.Secret) []Purpose {
	return slices.DeleteFunc(slices.Clone(purposes), func(p Purpose) bool { return found[p] != nil })
}

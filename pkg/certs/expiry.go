package certs

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ExpiryNotice is how long before certificates expire users are told.
const ExpiryNotice = 90 * 24 * time.Hour

// Expiring returns, by purpose, when a key pair's certificates expire, of those that do so before a time. A chain
// expires with the first of its certificates.
func (s *Set) Expiring(before time.Time) map[Purpose]time.Time {
	expiring := map[Purpose]time.Time{}
	for purpose, pair := range s.pairs {
		if expiry := BundleExpiry(pair.Cert); !expiry.IsZero() && expiry.Before(before) {
			expiring[purpose] = expiry
		}
	}
	return expiring
}

// BundleExpiry returns when the first certificate of a PEM bundle expires; zero if it has none.
func BundleExpiry(bundle []byte) time.Time {
	var first time.Time
	for rest := bundle; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return first
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err == nil && (first.IsZero() || certificate.NotAfter.Before(first)) {
			first = certificate.NotAfter
		}
	}
}

// KubeconfigExpiry returns when the client certificate of a cluster's kubeconfig expires, also of one that is the
// user's and isn't renewed; zero if there is none. It writes nothing.
func KubeconfigExpiry(ctx context.Context, reader client.Reader, cluster client.ObjectKey) (time.Time, error) {
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: cluster.Namespace, Name: KubeconfigSecretName(cluster.Name)}
	if err := reader.Get(ctx, key, secret); err != nil {
		if apierrors.IsNotFound(err) {
			return time.Time{}, nil
		}
		return time.Time{}, fmt.Errorf("reading Secret %s: %w", key.Name, err)
	}
	return KubeconfigSecretExpiry(secret), nil
}

// KubeconfigSecretExpiry is [KubeconfigExpiry] of a Secret that was read already.
func KubeconfigSecretExpiry(secret *corev1.Secret) time.Time {
	config, err := clientcmd.Load(secret.Data[kubeconfigKey])
	if err != nil || config.Contexts[config.CurrentContext] == nil {
		return time.Time{}
	}
	user := config.AuthInfos[config.Contexts[config.CurrentContext].AuthInfo]
	if user == nil {
		return time.Time{}
	}
	return BundleExpiry(user.ClientCertificateData)
}

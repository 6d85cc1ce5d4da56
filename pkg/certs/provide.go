package certs

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
	"github.com/capk3s/capk3s/pkg/custody"
)

// generate makes the root, then everything else. Whoever created a Secret first wins: what follows is signed by the
// root that is stored, so that reconcilers that run side by side, or one after the crash of another, end with one set.
func (r *reconciler) generate(ctx context.Context, secrets map[Purpose]*corev1.Secret) error {
	if err := r.keeper.MayGenerate(ctx); err != nil {
		return err
	}
	now := r.Now()
	root, made, err := r.provide(ctx, secrets, Root, func() (KeyPair, error) { return newRoot(now) })
	if err != nil {
		return err
	}
	for _, profile := range profiles {
		pair := func() (KeyPair, error) { return newCA(profile.commonName, now, root) }
		if profile.purpose == ServiceAccount {
			pair = newServiceAccount
		}
		_, created, err := r.provide(ctx, secrets, profile.purpose, pair)
		if err != nil {
			return err
		}
		made = made || created
	}
	if made {
		r.Recorder.Eventf(r.ControlPlane, nil, corev1.EventTypeNormal, CreatedEvent, "Provide",
			"made the certificate authorities in Secrets %s", r.names(known))
	}
	return nil
}

// provide creates the Secret for a purpose if it isn't there.
func (r *reconciler) provide(ctx context.Context, secrets map[Purpose]*corev1.Secret, purpose Purpose, pair func() (KeyPair, error)) (KeyPair, bool, error) {
	if existing := secrets[purpose]; existing != nil {
		stored, err := fromSecret(purpose, existing, r.Now())
		return stored, false, err
	}
	fresh, err := pair()
	if err != nil {
		return KeyPair{}, false, fmt.Errorf("making Secret %s: %w", r.name(purpose), err)
	}
	created, err := r.create(ctx, secrets, purpose, fresh)
	if err != nil {
		return KeyPair{}, false, err
	}
	if !custody.IsMarked(secrets[purpose]) {
		return KeyPair{}, false, fmt.Errorf("making Secret %s: somebody else made it meanwhile", r.name(purpose))
	}
	stored, err := fromSecret(purpose, secrets[purpose], r.Now())
	return stored, created, err
}

func (r *reconciler) create(ctx context.Context, secrets map[Purpose]*corev1.Secret, purpose Purpose, pair KeyPair) (bool, error) {
	secret, created, err := r.keeper.Create(ctx, r.name(purpose), map[string][]byte{certKey: pair.Cert, keyKey: pair.Key})
	if err != nil {
		return false, err
	}
	secrets[purpose] = secret
	return created, nil
}

// restore puts back lost key pairs that a live server still has.
func (r *reconciler) restore(ctx context.Context, secrets map[Purpose]*corev1.Secret, missing []Purpose) error {
	pairs, err := r.Recover(ctx)
	if err != nil {
		// Not part of the message: it can differ each time, and a condition that changes is a write.
		ctrl.LoggerFrom(ctx).Info("No server gave the lost certificate authorities back", "cause", err.Error())
	}
	var lost []Purpose
	var doubts []string
	for _, purpose := range missing {
		pair, ok := pairs[purpose]
		if !ok {
			lost = append(lost, purpose)
			continue
		}
		checked, err := r.verified(purpose, pair)
		if err != nil {
			lost = append(lost, purpose)
			doubts = append(doubts, fmt.Sprintf("; a server offered %s, but %v", r.name(purpose), err))
			continue
		}
		created, err := r.create(ctx, secrets, purpose, checked)
		if err != nil {
			return err
		}
		if created {
			r.Recorder.Eventf(r.ControlPlane, secrets[purpose], corev1.EventTypeNormal, RestoredEvent, "Provide",
				"put the lost Secret %s back, from a server", r.name(purpose))
		}
	}
	if len(lost) == 0 {
		return nil
	}
	return &Error{Reason: controlplanev1.CertificatesLostReason, RetryAfter: retryRecovery, Message: fmt.Sprintf(
		"the Secrets %s are gone, and no server gave them back%s. No new ones are made, because the cluster couldn't use them. Create them again from a backup or from /var/lib/rancher/k3s/server/tls on a server: type %s, keys %s and %s",
		r.names(lost), strings.Join(doubts, ""), "cluster.x-k8s.io/secret", certKey, keyKey)}
}

// verified returns a pair that a server gave if it is the one that the cluster was founded with.
func (r *reconciler) verified(purpose Purpose, pair KeyPair) (KeyPair, error) {
	checked, err := pair.checked(purpose, r.Now())
	if err != nil {
		return KeyPair{}, err
	}
	fingerprint, err := Fingerprint(checked.Cert)
	if err != nil {
		return KeyPair{}, err
	}
	if recorded := r.Fingerprints[string(purpose)]; recorded != "" && recorded != fingerprint {
		return KeyPair{}, fmt.Errorf("it isn't the one that the cluster was founded with")
	}
	return checked, nil
}

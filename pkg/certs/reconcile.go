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
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
	"github.com/capk3s/capk3s/pkg/custody"
)

// Error says why there is no set of certificate authorities, as a reason and a message for the condition
// CertificatesAvailable. Find it with errors.As; every other error is a failure that trying again may mend.
type Error = custody.Error

// Reasons of the events about certificates.
const (
	// CreatedEvent says that the certificate authorities of a new cluster were made.
	CreatedEvent = "CertificatesCreated"

	// RestoredEvent says that a lost certificate authority was put back.
	RestoredEvent = "CertificateRestored"
)

// retryRecovery is when a server is asked again for what was lost.
const retryRecovery = 30 * time.Second

// Input is what [Reconcile] needs.
type Input struct {
	// Client reads from the cache and writes.
	Client client.Client

	// APIReader reads from the API server. It is asked only when the cache lacks a Secret or a write conflicts.
	APIReader client.Reader

	// Recorder takes the events, which are about ControlPlane.
	Recorder events.EventRecorder

	// Cluster is the Cluster that the certificates belong to.
	Cluster *clusterv1.Cluster

	// ControlPlane is the control plane of Cluster.
	ControlPlane *controlplanev1.KThreesControlPlane

	// Initialized says whether there is any evidence that the cluster was founded.
	Initialized bool

	// Fingerprints are those of the set that the cluster was founded with, as Set.Fingerprints gave them; empty when
	// they weren't recorded. What a server gives back must match them.
	Fingerprints map[string]string

	// Recover reads the key pairs from a live server that the caller has verified. It is called only when one is
	// lost. The certificate of ServiceAccount may be empty. An error is logged; the loss is what is reported.
	Recover func(ctx context.Context) (map[Purpose]KeyPair, error)

	// Now is the clock.
	Now func() time.Time
}

// Reconcile returns the certificate authorities of a cluster and sees to it that they aren't lost: it makes them for
// a new cluster, puts lost ones back, and keeps the Secrets' owner and labels. It never changes the data of a Secret
// that exists.
//
// An [*Error] says why there is no usable set. When another controller contests a Secret, the set is returned
// together with an [*Error]. A pass that finds all well reads the Secrets from the cache and writes nothing.
func Reconcile(ctx context.Context, in Input) (*Set, error) {
	r := reconciler{Input: in, keeper: &custody.Keeper{
		Client: in.Client, APIReader: in.APIReader, Recorder: in.Recorder,
		Cluster: in.Cluster, ControlPlane: in.ControlPlane, Now: in.Now,
	}}
	if err := r.keeper.Entitled(); err != nil {
		return nil, err
	}
	secrets, err := r.read(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := r.check(secrets); err != nil {
		return nil, err
	}
	if err := r.complete(ctx, secrets); err != nil {
		return nil, err
	}
	contested, err := r.keep(ctx, secrets)
	if err != nil {
		return nil, err
	}
	// After a conflict these aren't the Secrets that were read before.
	set, err := r.check(secrets)
	if err != nil {
		return nil, err
	}
	if contested != nil {
		return set, contested.WithReason(controlplanev1.ForeignSecretReason)
	}
	return set, nil
}

type reconciler struct {
	Input
	keeper *custody.Keeper
}

// read returns the Secrets that exist. The API server is asked only if the cached ones aren't enough.
func (r *reconciler) read(ctx context.Context) (map[Purpose]*corev1.Secret, error) {
	secrets := map[Purpose]*corev1.Secret{}
	for _, purpose := range known {
		secret := &corev1.Secret{}
		key := client.ObjectKey{Namespace: r.Cluster.Namespace, Name: r.name(purpose)}
		err := r.Client.Get(ctx, key, secret)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading Secret %s: %w", key.Name, err)
		}
		secrets[purpose] = secret
	}
	if len(r.missing(secrets)) == 0 {
		return secrets, nil
	}
	for _, purpose := range missingOf(known, secrets) {
		secret, err := r.keeper.GetLive(ctx, r.name(purpose))
		if err != nil {
			return nil, err
		}
		if secret != nil {
			secrets[purpose] = secret
		}
	}
	return secrets, nil
}

// check returns the set, or what is wrong with one of the Secrets.
func (r *reconciler) check(secrets map[Purpose]*corev1.Secret) (*Set, error) {
	for _, purpose := range slices.Sorted(maps.Keys(secrets)) {
		if err := r.keeper.Check(secrets[purpose]); err != nil {
			return nil, err
		}
	}
	return setOf(secrets, r.Now())
}

// complete adds what is missing: from a live server once the cluster was founded, new before that.
func (r *reconciler) complete(ctx context.Context, secrets map[Purpose]*corev1.Secret) error {
	missing := r.missing(secrets)
	switch {
	case r.Initialized && len(missing) > 0:
		return r.restore(ctx, secrets, missing)
	case r.Initialized:
		return nil
	case !r.Initialized && len(missingOf(full, secrets)) == 0:
		return nil
	case r.allOurs(secrets):
		return r.generate(ctx, secrets)
	}
	return custody.Errorf(controlplanev1.CertificatesIncompleteReason,
		"the Secrets %s exist, but not %s. Provide all of them, or none and they are made",
		r.names(slices.Sorted(maps.Keys(secrets))), r.names(missingOf(full, secrets)))
}

// allOurs says whether there is nothing, or what is left of an interrupted generation by this operator. The latter
// can be finished, because nothing was ever used of it and the root that signs the rest is there.
func (r *reconciler) allOurs(secrets map[Purpose]*corev1.Secret) bool {
	for _, secret := range secrets {
		if !custody.IsMarked(secret) {
			return false
		}
	}
	return len(secrets) == 0 || secrets[Root] != nil
}

// keep makes the metadata of all Secrets right. A contested one doesn't stop the others.
func (r *reconciler) keep(ctx context.Context, secrets map[Purpose]*corev1.Secret) (*custody.ContestedError, error) {
	var contested *custody.ContestedError
	for _, purpose := range slices.Sorted(maps.Keys(secrets)) {
		kept, err := r.keeper.Keep(ctx, secrets[purpose])
		if c := custody.IsContested(err); c != nil {
			contested = c
		} else if err != nil {
			return nil, err
		}
		secrets[purpose] = kept
	}
	return contested, nil
}

func (r *reconciler) missing(secrets map[Purpose]*corev1.Secret) []Purpose {
	if !r.Initialized {
		return missingOf(full, secrets)
	}
	return missingOf(required(secrets, r.Fingerprints), secrets)
}

func (r *reconciler) name(purpose Purpose) string { return purpose.SecretName(r.Cluster.Name) }

func (r *reconciler) names(purposes []Purpose) string {
	names := make([]string, len(purposes))
	for i, purpose := range purposes {
		names[i] = r.name(purpose)
	}
	return strings.Join(names, ", ")
}

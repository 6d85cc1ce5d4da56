package custody

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
)

// OwnerReplacedEvent is the reason of the event for a controller reference that was replaced.
const OwnerReplacedEvent = "SecretOwnerReplaced"

// conflictTries bounds how often a patch is planned anew after somebody else wrote.
const conflictTries = 5

// Keeper keeps the Secrets of one control plane. All fields are required.
type Keeper struct {
	// Client reads from the cache and writes.
	Client client.Client

	// APIReader reads from the API server; absence is only believed from here.
	APIReader client.Reader

	// Recorder takes the events, which are about ControlPlane.
	Recorder events.EventRecorder

	// Cluster is the Cluster that the Secrets belong to.
	Cluster *clusterv1.Cluster

	// ControlPlane becomes the controller of the Secrets.
	ControlPlane *controlplanev1.KThreesControlPlane

	// Now is the clock.
	Now func() time.Time
}

// Entitled returns an [*Error] with reason ForeignCluster when the Cluster's control plane is another object: then
// its Secrets are not to be touched.
func (k *Keeper) Entitled() error {
	if k.ControlPlane.UID == "" {
		return fmt.Errorf("KThreesControlPlane %s has no uid", k.ControlPlane.Name)
	}
	ref := k.Cluster.Spec.ControlPlaneRef
	if ref.APIGroup == controlplanev1.GroupVersion.Group && ref.Kind == controlPlaneKind && ref.Name == k.ControlPlane.Name &&
		k.Cluster.Namespace == k.ControlPlane.Namespace {
		return nil
	}
	if !ref.IsDefined() {
		return Errorf(controlplanev1.ForeignClusterReason, "Cluster %s names no control plane; set spec.controlPlaneRef to this KThreesControlPlane",
			k.Cluster.Name)
	}
	return Errorf(controlplanev1.ForeignClusterReason, "Cluster %s names %s %s as its control plane; this KThreesControlPlane writes nothing for it",
		k.Cluster.Name, ref.Kind, ref.Name)
}

// Get reads a Secret of the Cluster's namespace from the cache. Only when it isn't there, the API server is asked;
// a nil Secret without error means that the API server has none.
func (k *Keeper) Get(ctx context.Context, name string) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	err := k.Client.Get(ctx, k.key(name), secret)
	if err == nil {
		return secret, nil
	}
	if !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("reading Secret %s: %w", name, err)
	}
	return k.GetLive(ctx, name)
}

// GetLive reads a Secret of the Cluster's namespace from the API server; nil without error means that it has none.
func (k *Keeper) GetLive(ctx context.Context, name string) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	err := k.APIReader.Get(ctx, k.key(name), secret)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading Secret %s from the API server: %w", name, err)
	}
	return secret, nil
}

// Create creates a Secret that is marked as made by this operator. When there is one of that name already, created
// is false and that one is returned.
func (k *Keeper) Create(ctx context.Context, name string, data map[string][]byte) (secret *corev1.Secret, created bool, err error) {
	secret = &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: k.Cluster.Namespace,
			Name:      name,
			Labels: map[string]string{
				clusterv1.ClusterNameLabel:       k.Cluster.Name,
				clusterctlv1.ClusterctlMoveLabel: "",
				controlplanev1.ManagedLabel:      "",
			},
			OwnerReferences: []metav1.OwnerReference{Reference(k.ControlPlane)},
		},
		Type: clusterv1.ClusterSecretType,
		Data: data,
	}
	err = k.Client.Create(ctx, secret)
	if err == nil {
		return secret, true, nil
	}
	if !apierrors.IsAlreadyExists(err) {
		return nil, false, fmt.Errorf("creating Secret %s: %w", name, err)
	}
	existing, err := k.GetLive(ctx, name)
	if err != nil {
		return nil, false, err
	}
	if existing == nil {
		return nil, false, fmt.Errorf("creating Secret %s: it existed a moment ago and is gone now", name)
	}
	return existing, false, nil
}

// Check returns an [*Error] with reason ForeignSecret when a Secret belongs to another cluster.
func (k *Keeper) Check(secret *corev1.Secret) error {
	if other := secret.Labels[clusterv1.ClusterNameLabel]; other != "" && other != k.Cluster.Name {
		return foreignSecret(secret.Name, "has the label of cluster %s; rename it, or correct the label %s",
			other, clusterv1.ClusterNameLabel)
	}
	return nil
}

// Keep makes the labels and owner references of a Secret right, in one patch of nothing but metadata, and returns the
// Secret as it is afterwards. When they are right already, nothing is written.
//
// A foreign controller that takes the Secret back is left alone for ten minutes: then the Secret is returned
// together with a [*ContestedError].
func (k *Keeper) Keep(ctx context.Context, secret *corev1.Secret) (*corev1.Secret, error) {
	return k.keep(ctx, secret, false)
}

// Inherit is Keep for a Secret that an older provider made and whose data this operator makes anew: the mark that it
// gets tells so after a restore, which drops its owner.
func (k *Keeper) Inherit(ctx context.Context, secret *corev1.Secret) (*corev1.Secret, error) {
	return k.keep(ctx, secret, true)
}

func (k *Keeper) keep(ctx context.Context, secret *corev1.Secret, mark bool) (*corev1.Secret, error) {
	ours := Reference(k.ControlPlane)
	for range conflictTries {
		if err := k.Check(secret); err != nil {
			return nil, err
		}
		p := planFor(secret, ours, k.Cluster.Name, mark)
		if p.empty() {
			return secret, nil
		}
		if contested := k.contested(secret, p); contested != nil {
			return secret, contested
		}
		patched, err := k.patch(ctx, secret, p)
		if err == nil {
			return patched, nil
		}
		if !apierrors.IsConflict(err) {
			return nil, fmt.Errorf("patching the metadata of Secret %s: %w", secret.Name, err)
		}
		fresh, err := k.GetLive(ctx, secret.Name)
		if err != nil {
			return nil, err
		}
		if fresh == nil {
			return nil, fmt.Errorf("patching the metadata of Secret %s: it was deleted meanwhile", secret.Name)
		}
		secret = fresh
	}
	return nil, fmt.Errorf("patching the metadata of Secret %s: it changed %d times meanwhile", secret.Name, conflictTries)
}

func (k *Keeper) contested(secret *corev1.Secret, p plan) error {
	if !p.takes {
		return nil
	}
	now := k.Now()
	wait := max(untilNextTake(secret, now), takes.untilNextTake(secret.UID, now))
	if wait == 0 {
		return nil
	}
	return &ContestedError{Secret: secret.Name, By: describe(p.replaced), RetryAfter: wait}
}

func (k *Keeper) patch(ctx context.Context, secret *corev1.Secret, p plan) (*corev1.Secret, error) {
	now := k.Now()
	after := secret.DeepCopy()
	p.apply(after, now)
	patch := client.MergeFromWithOptions(secret, client.MergeFromWithOptimisticLock{})
	if err := k.Client.Patch(ctx, after, patch); err != nil {
		return nil, err
	}
	if p.takes {
		takes.record(after.UID, now)
	}
	if len(p.replaced) > 0 {
		k.Recorder.Eventf(k.ControlPlane, after, corev1.EventTypeNormal, OwnerReplacedEvent, "Adopt",
			"Secret %s is now controlled by this KThreesControlPlane instead of %s", after.Name, describe(p.replaced))
	}
	return after, nil
}

// IsMarked says whether this operator created the Secret, so that its data are the operator's work.
func IsMarked(secret *corev1.Secret) bool {
	_, ok := secret.Labels[controlplanev1.ManagedLabel]
	return ok
}

// IsContested returns the [*ContestedError] in err, or nil.
func IsContested(err error) *ContestedError {
	var contested *ContestedError
	if errors.As(err, &contested) {
		return contested
	}
	return nil
}

func describe(refs []metav1.OwnerReference) string {
	text := ""
	for i, ref := range refs {
		if i > 0 {
			text += ", "
		}
		text += fmt.Sprintf("%s %s", ref.Kind, ref.Name)
	}
	return text
}

func (k *Keeper) key(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: k.Cluster.Namespace, Name: name}
}

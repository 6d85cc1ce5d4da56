package custody

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/test/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
)

// backedUp are the kinds of a cluster. Clusters are wiped last, since what is wiped finds its Cluster paused.
var backedUp = []schema.GroupVersionKind{
	controlplanev1.GroupVersion.WithKind("KThreesControlPlane"),
	clusterv1.GroupVersion.WithKind("Machine"),
	bootstrapv1.GroupVersion.WithKind("KThreesConfig"),
	builder.InfrastructureGroupVersion.WithKind(builder.GenericInfrastructureMachineKind),
	builder.InfrastructureGroupVersion.WithKind(builder.GenericInfrastructureMachineTemplateKind),
	builder.InfrastructureGroupVersion.WithKind(builder.GenericInfrastructureClusterKind),
	corev1.SchemeGroupVersion.WithKind("Secret"),
	corev1.SchemeGroupVersion.WithKind("ConfigMap"),
	clusterv1.GroupVersion.WithKind("Cluster"),
}

// backup returns the objects of the cluster.
func (s *stage) backup() []*unstructured.Unstructured {
	s.Helper()
	var objects []*unstructured.Unstructured
	for _, kind := range backedUp {
		found := &unstructured.UnstructuredList{}
		found.SetGroupVersionKind(kind)
		for _, object := range list(s, found).Items {
			objects = append(objects, object.DeepCopy())
		}
	}
	return objects
}

// wipe loses the management cluster's objects without a trace in the workload cluster.
func (s *stage) wipe() {
	s.Helper()
	s.pause(true)
	for _, object := range s.backup() {
		require.NoError(s, client.IgnoreNotFound(s.env.Client.Delete(background, object, client.PropagationPolicy("Background"))))
		err := s.env.Client.Patch(background, object, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`)))
		require.NoError(s, client.IgnoreNotFound(err))
	}
	s.await("the loss of everything", func() {}, func() error {
		if left := s.backup(); len(left) > 0 {
			return fmt.Errorf("%d objects, %s %s among them", len(left), left[0].GetKind(), left[0].GetName())
		}
		return nil
	})
}

// pause pauses the Cluster, or ends that, and waits until both providers have seen it.
func (s *stage) pause(paused bool) {
	s.Helper()
	cluster := &clusterv1.Cluster{ObjectMeta: s.meta()}
	patch := fmt.Sprintf(`{"spec":{"paused":%t}}`, paused)
	require.NoError(s, s.env.Client.Patch(background, cluster, client.RawPatch("application/merge-patch+json", []byte(patch))))
	if !paused {
		return
	}
	s.await("the pause", func() {}, func() error {
		for _, kind := range []string{"KThreesControlPlane", "KThreesConfig"} {
			for _, object := range s.backup() {
				if object.GetKind() == kind && !pausedCondition(object) {
					return fmt.Errorf("%s %s isn't paused", kind, object.GetName())
				}
			}
		}
		return nil
	})
}

func pausedCondition(object *unstructured.Unstructured) bool {
	found, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	return slices.ContainsFunc(found, func(c any) bool {
		condition, ok := c.(map[string]any)
		return ok && condition["type"] == clusterv1.PausedCondition && condition["status"] == "True"
	})
}

// velero does to an object what Velero does when it restores it.
func velero(object *unstructured.Unstructured) *unstructured.Unstructured {
	restored := object.DeepCopy()
	metadata := map[string]any{"name": object.GetName(), "namespace": object.GetNamespace()}
	for _, kept := range []string{"labels", "annotations", "finalizers"} {
		if value, found, _ := unstructured.NestedFieldCopy(object.Object, "metadata", kept); found {
			metadata[kept] = value
		}
	}
	restored.Object["metadata"] = metadata
	delete(restored.Object, "status")
	labels := restored.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels["velero.io/backup-name"], labels["velero.io/restore-name"] = "nightly", "nightly-1"
	restored.SetLabels(labels)
	return restored
}

// restore creates objects in their order. Those of which late says so come when the control plane has acted without
// them, if it could.
func (s *stage) restore(objects []*unstructured.Unstructured, random *rand.Rand, late func(*unstructured.Unstructured) bool) {
	s.Helper()
	var later []*unstructured.Unstructured
	for _, object := range objects {
		if late(object) {
			later = append(later, object)
			continue
		}
		s.restoreOne(object)
		time.Sleep(time.Duration(random.IntN(100)) * time.Millisecond)
	}
	if len(later) == 0 {
		return
	}
	if nobodyActs(objects, later) {
		time.Sleep(lateness)
	} else {
		s.awaitAWord()
	}
	for _, object := range later {
		s.restoreOne(object)
	}
}

// lateness is how late an object comes when nobody acts without it, so that there is nothing to wait for.
const lateness = 3 * time.Second

// nobodyActs says whether the control plane waits until all is there: for itself, for its Cluster, or for the end of
// the pause.
func nobodyActs(objects, later []*unstructured.Unstructured) bool {
	return slices.ContainsFunc(objects, func(object *unstructured.Unstructured) bool {
		paused, _, _ := unstructured.NestedBool(object.Object, "spec", "paused")
		vital := object.GetKind() == "Cluster" || object.GetKind() == "KThreesControlPlane"
		return vital && (paused || slices.Contains(later, object))
	})
}

// awaitAWord waits until the control plane, whose status was lost, has looked after its Secrets.
func (s *stage) awaitAWord() {
	s.Helper()
	s.await("a word from the control plane", func() {}, func() error {
		cp := s.controlPlane()
		if conditions.Has(cp, controlplanev1.TokenAvailableCondition) && conditions.Has(cp, controlplanev1.CertificatesAvailableCondition) {
			return nil
		}
		return errors.New("it says nothing of its Secrets")
	})
}

// restoreOne leaves what exists alone, as Velero does.
func (s *stage) restoreOne(object *unstructured.Unstructured) {
	s.Helper()
	err := s.env.Client.Create(background, object.DeepCopy())
	if err != nil && !apierrors.IsAlreadyExists(err) {
		require.NoErrorf(s, err, "restoring %s %s", object.GetKind(), object.GetName())
	}
}

func never(*unstructured.Unstructured) bool { return false }

func mapped(objects []*unstructured.Unstructured, change func(*unstructured.Unstructured) *unstructured.Unstructured) []*unstructured.Unstructured {
	changed := make([]*unstructured.Unstructured, 0, len(objects))
	for _, object := range objects {
		if c := change(object); c != nil {
			changed = append(changed, c)
		}
	}
	return changed
}

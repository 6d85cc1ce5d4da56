package custody

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
)

const (
	controlPlaneKind = "KThreesControlPlane"
	configKind       = "KThreesConfig"
)

// Reference returns the controller reference to a control plane. Its group, version and kind are constants: a typed
// object that was read from the API server doesn't know them.
func Reference(controlPlane *controlplanev1.KThreesControlPlane) metav1.OwnerReference {
	return *metav1.NewControllerRef(controlPlane, controlplanev1.GroupVersion.WithKind(controlPlaneKind))
}

// HasController says whether a control plane is the controller of a Secret, by a reference of any version of its API and
// to this life of the object or an older one.
func HasController(secret *corev1.Secret, controlPlane *controlplanev1.KThreesControlPlane) bool {
	return slices.ContainsFunc(secret.OwnerReferences, func(ref metav1.OwnerReference) bool {
		return isController(ref) && RefersTo(ref, controlPlane.Name)
	})
}

// RefersTo says whether a reference is to the control plane of that name, by any version of its API: to this life of the
// object or to an older one, since a restored control plane has another UID.
func RefersTo(ref metav1.OwnerReference, controlPlane string) bool {
	return is(ref, controlplanev1.GroupVersion.Group, controlPlaneKind) && ref.Name == controlPlane
}

// references is how the owner references of a Secret must change.
type references struct {
	// wanted are the references afterwards.
	wanted []metav1.OwnerReference

	// changed says whether wanted differs from what there is.
	changed bool

	// replaced are the controller references that ours takes the place of.
	replaced []metav1.OwnerReference

	// takes says whether one of the replaced references belongs to somebody else.
	takes bool
}

// planReferences puts ours in. References to older lives of our control plane, to any KThreesConfig and to another
// controller go, the others stay in their order.
func planReferences(current []metav1.OwnerReference, ours metav1.OwnerReference) references {
	var plan references
	seen := map[types.UID]bool{}
	present := false
	for _, ref := range current {
		switch {
		case !present && same(ref, ours):
			present = true
			seen[ref.UID] = true
			plan.wanted = append(plan.wanted, ref)
			continue
		case seen[ref.UID]:
			// A second reference to the same owner.
		case ref.UID == ours.UID || RefersTo(ref, ours.Name):
			if isController(ref) && ref.UID != ours.UID {
				plan.replaced = append(plan.replaced, ref)
			}
		case isController(ref):
			plan.replaced = append(plan.replaced, ref)
			plan.takes = true
		case is(ref, bootstrapv1.GroupVersion.Group, configKind):
			// Garbage collection must never depend on the configuration of one machine.
		default:
			seen[ref.UID] = true
			plan.wanted = append(plan.wanted, ref)
			continue
		}
		plan.changed = true
	}
	if !present {
		plan.wanted = append(plan.wanted, ours)
		plan.changed = true
	}
	return plan
}

// same compares what makes a reference ours. Whether it blocks the owner's deletion is left as it is.
func same(a, b metav1.OwnerReference) bool {
	return a.APIVersion == b.APIVersion && a.Kind == b.Kind && a.Name == b.Name && a.UID == b.UID &&
		isController(a) == isController(b)
}

func isController(ref metav1.OwnerReference) bool { return ptr.Deref(ref.Controller, false) }

// is compares kind and group; every version of a group is the same kind of object.
func is(ref metav1.OwnerReference, group, kind string) bool {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	return err == nil && gv.Group == group && ref.Kind == kind
}

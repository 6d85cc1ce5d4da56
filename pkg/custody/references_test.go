package custody

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
)

var ours = Reference(&controlplanev1.KThreesControlPlane{ObjectMeta: metav1.ObjectMeta{Name: "cp", UID: "live"}})

func ref(apiVersion, kind, name, uid string, controller bool) metav1.OwnerReference {
	r := metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: name, UID: types.UID(uid)}
	if controller {
		r.Controller = ptr.To(true)
	}
	return r
}

func TestReference_IsCompleteForATypedObjectWithoutTypeMeta(t *testing.T) {
	require.Equal(t, metav1.OwnerReference{
		APIVersion: "controlplane.cluster.x-k8s.io/v1beta3", Kind: "KThreesControlPlane", Name: "cp", UID: "live",
		Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
	}, ours)
}

func TestPlanReferences(t *testing.T) {
	const cpV3, cpV2 = "controlplane.cluster.x-k8s.io/v1beta3", "controlplane.cluster.x-k8s.io/v1beta2"
	const configV3, configV1 = "bootstrap.cluster.x-k8s.io/v1beta3", "bootstrap.cluster.x-k8s.io/v1beta1"
	human := ref("v1", "ConfigMap", "notes", "u1", false)
	foreign := ref("external-secrets.io/v1", "ExternalSecret", "es", "u2", true)
	config := ref(configV1, "KThreesConfig", "m-1", "u3", true)
	stale := ref(cpV3, "KThreesControlPlane", "cp", "dead", true)
	oldVersion := ref(cpV2, "KThreesControlPlane", "cp", "live", true)
	oursWithoutBlock := ref(cpV3, "KThreesControlPlane", "cp", "live", true)

	for name, tc := range map[string]struct {
		current, wanted, replaced []metav1.OwnerReference
		takes                     bool
	}{
		"no reference":                     {nil, list(ours), nil, false},
		"ours is there":                    {list(ours), list(ours), nil, false},
		"ours that doesn't block deletion": {list(oursWithoutBlock), list(oursWithoutBlock), nil, false},
		"ours among others":                {list(human, ours), list(human, ours), nil, false},
		"ours twice":                       {list(ours, human, ours), list(ours, human), nil, false},
		"ours but not controlling":         {list(ref(cpV3, "KThreesControlPlane", "cp", "live", false)), list(ours), nil, false},
		"ours of an older version":         {list(oldVersion), list(ours), nil, false},
		"stale uid":                        {list(stale), list(ours), list(stale), false},
		"stale uid beside ours":            {list(ref(cpV2, "KThreesControlPlane", "cp", "dead", false), ours), list(ours), nil, false},
		"another control plane, not controlling": {
			list(ref(cpV3, "KThreesControlPlane", "other", "u4", false)),
			list(ref(cpV3, "KThreesControlPlane", "other", "u4", false), ours), nil, false,
		},
		"foreign controller":               {list(human, foreign), list(human, ours), list(foreign), true},
		"controlling KThreesConfig":        {list(config, human), list(human, ours), list(config), true},
		"KThreesConfig, not controlling":   {list(human, ref(configV3, "KThreesConfig", "m-2", "u5", false)), list(human, ours), nil, false},
		"KThreesConfig beside ours":        {list(ours, ref(configV1, "KThreesConfig", "m-2", "u5", false)), list(ours), nil, false},
		"KThreesConfig of another group":   {list(ref("example.org/v1", "KThreesConfig", "x", "u6", false)), list(ref("example.org/v1", "KThreesConfig", "x", "u6", false), ours), nil, false},
		"the same human's reference twice": {list(human, human), list(human, ours), nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			got := planReferences(tc.current, ours)
			require.Equal(t, tc.wanted, got.wanted)
			require.Equal(t, tc.replaced, got.replaced)
			require.Equal(t, tc.takes, got.takes)
			require.Equal(t, !slices.EqualFunc(tc.current, tc.wanted, same), got.changed)
		})
	}
}

// For any references: afterwards ours is the only controller and there once, no KThreesConfig and no older life of
// our control plane is left, all foreign owners that don't control stay in their order, and a second pass changes
// nothing.
func TestPlanReferences_HoldsForAnyReferences(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		current := randomReferences(random)
		got := planReferences(current, ours)

		require.Equal(t, 1, count(got.wanted, func(r metav1.OwnerReference) bool { return same(r, ours) }), "%v", current)
		require.Equal(t, 1, count(got.wanted, isController), "%v", current)
		require.Zero(t, count(got.wanted, isConfig), "%v", current)
		require.Zero(t, count(got.wanted, isOlder), "%v", current)
		require.Equal(t, foreigners(current), foreigners(got.wanted), "%v", current)
		require.Equal(t, !slices.EqualFunc(current, got.wanted, same), got.changed, "%v", current)

		again := planReferences(got.wanted, ours)
		require.False(t, again.changed, "%v", current)
		require.Equal(t, got.wanted, again.wanted)
		require.Empty(t, again.replaced)
	}
}

func randomReferences(random *rand.Rand) []metav1.OwnerReference {
	versions := []string{
		"controlplane.cluster.x-k8s.io/v1beta3", "controlplane.cluster.x-k8s.io/v1beta1",
		"bootstrap.cluster.x-k8s.io/v1beta3", "bootstrap.cluster.x-k8s.io/v1beta2", "v1", "", "a/b/c",
	}
	kinds := []string{"KThreesControlPlane", "KThreesConfig", "Cluster"}
	names := []string{"cp", "other"}
	uids := []string{"live", "dead", "u1", "u2", "u3"}
	refs := make([]metav1.OwnerReference, random.IntN(6))
	for i := range refs {
		refs[i] = ref(pick(random, versions), pick(random, kinds), pick(random, names), pick(random, uids), random.IntN(3) == 0)
	}
	return refs
}

// foreigners are the owners, each once, whose references must stay.
func foreigners(refs []metav1.OwnerReference) []types.UID {
	var found []types.UID
	for _, r := range refs {
		if !isController(r) && !isConfig(r) && !isOlder(r) && r.UID != ours.UID && !slices.Contains(found, r.UID) {
			found = append(found, r.UID)
		}
	}
	return found
}

func isConfig(r metav1.OwnerReference) bool {
	return is(r, "bootstrap.cluster.x-k8s.io", "KThreesConfig")
}

func isOlder(r metav1.OwnerReference) bool {
	return is(r, "controlplane.cluster.x-k8s.io", "KThreesControlPlane") && r.Name == ours.Name && !same(r, ours)
}

func pick(random *rand.Rand, from []string) string { return from[random.IntN(len(from))] }

func list(refs ...metav1.OwnerReference) []metav1.OwnerReference { return refs }

func count(refs []metav1.OwnerReference, is func(metav1.OwnerReference) bool) int {
	n := 0
	for _, r := range refs {
		if is(r) {
			n++
		}
	}
	return n
}

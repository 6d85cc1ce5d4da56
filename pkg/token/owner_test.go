package token_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
	"github.com/capk3s/capk3s/pkg/custody"
	"github.com/capk3s/capk3s/test/testenv"
)

// References as they were found in the field, and what must be there afterwards.
func TestReconcile_KeepsTheOwnerReferences(t *testing.T) {
	const configV1, configV3 = "bootstrap.cluster.x-k8s.io/v1beta1", "bootstrap.cluster.x-k8s.io/v1beta3"
	human := ownerRef("v1", "ConfigMap", "notes", "b0b")
	for name, tc := range map[string]struct {
		before func(ours metav1.OwnerReference) []metav1.OwnerReference
		after  func(ours metav1.OwnerReference) []metav1.OwnerReference
		event  string
	}{
		"stripped by a restore": {none, only, ""},
		"several, one of them ours": {
			func(ours metav1.OwnerReference) []metav1.OwnerReference {
				return refs(human, ours, ownerRef("v1", "Pod", "p", "c0de"))
			},
			func(ours metav1.OwnerReference) []metav1.OwnerReference {
				return refs(human, ours, ownerRef("v1", "Pod", "p", "c0de"))
			}, "",
		},
		"ours as a controller of an older version": {
			func(ours metav1.OwnerReference) []metav1.OwnerReference {
				ours.APIVersion = "controlplane.cluster.x-k8s.io/v1beta2"
				return refs(ours)
			}, only, "",
		},
		"stale uid of the same control plane": {
			func(ours metav1.OwnerReference) []metav1.OwnerReference { ours.UID = "dead"; return refs(ours) },
			only, "instead of KThreesControlPlane c-control-plane",
		},
		"controller of another kind": {
			func(metav1.OwnerReference) []metav1.OwnerReference {
				return refs(human, controllerRef("example.org/v1", "Vault", "v"))
			},
			func(ours metav1.OwnerReference) []metav1.OwnerReference { return refs(human, ours) }, "instead of Vault v",
		},
		"controlled by a KThreesConfig": {
			func(metav1.OwnerReference) []metav1.OwnerReference {
				return refs(controllerRef(configV1, "KThreesConfig", "m-1"))
			},
			only, "instead of KThreesConfig m-1",
		},
		"a KThreesConfig that doesn't control and a human's reference": {
			func(metav1.OwnerReference) []metav1.OwnerReference {
				return refs(ownerRef(configV3, "KThreesConfig", "m", "f00"), human)
			},
			func(ours metav1.OwnerReference) []metav1.OwnerReference { return refs(human, ours) }, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			require.Empty(t, f.ControlPlane.GetObjectKind().GroupVersionKind(), "typed objects come without GVK")
			ours := custody.Reference(f.ControlPlane)
			f.create(t, map[string]string{"value": oldToken}, ownedBy(tc.before(ours)...))

			got, err := f.reconcile()
			require.NoError(t, err)
			require.True(t, got.Server == oldToken)
			secret := f.read(t)
			require.Equal(t, tc.after(ours), secret.OwnerReferences)
			require.Equal(t, map[string][]byte{"value": []byte(oldToken)}, secret.Data)
			require.LessOrEqual(t, len(f.cached.Writes()), 1)
			if tc.event != "" {
				require.Contains(t, strings.Join(f.events(), "\n"), tc.event)
			}

			f.cached.Reset()
			_, err = f.reconcile()
			require.NoError(t, err)
			require.Empty(t, f.cached.Writes())
		})
	}
}

func none(metav1.OwnerReference) []metav1.OwnerReference      { return nil }
func only(ours metav1.OwnerReference) []metav1.OwnerReference { return refs(ours) }
func refs(r ...metav1.OwnerReference) []metav1.OwnerReference { return r }

func TestReconcile_DoesNotFightAnotherController(t *testing.T) {
	f := newFixture(t)
	vault := ownedBy(controllerRef("example.org/v1", "Vault", "v"))
	f.create(t, map[string]string{"value": oldToken}, vault)
	_, err := f.reconcile()
	require.NoError(t, err)

	taken := f.read(t)
	vault(taken)
	require.NoError(t, env.Client.Update(context.Background(), taken))
	f.cached.Reset()
	for range 3 {
		got, err := f.reconcile()
		f.requireReason(t, err, controlplanev1.TokenContestedReason)
		require.True(t, got.Server == oldToken)
	}
	require.Empty(t, f.cached.Writes())
}

func TestReconcile_LeavesTheSecretOfAnotherControlPlane(t *testing.T) {
	for name, change := range map[string]func(*clusterv1.Cluster){
		"another name":     func(c *clusterv1.Cluster) { c.Spec.ControlPlaneRef.Name = "other" },
		"another kind":     func(c *clusterv1.Cluster) { c.Spec.ControlPlaneRef.Kind = "KubeadmControlPlane" },
		"no control plane": func(c *clusterv1.Cluster) { c.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{} },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.create(t, map[string]string{"value": oldToken})
			change(f.Cluster)
			_, err := f.reconcile()
			f.requireReason(t, err, controlplanev1.ForeignClusterReason)
			require.Empty(t, f.cached.Calls())
			require.Empty(t, f.live.Calls())
		})
	}
}

func TestReconcile_TheTokenOutlivesEveryKThreesConfig(t *testing.T) {
	env.StartControllerManager(t)
	f := newFixture(t)
	machine := testenv.Machine(f.Cluster, "m", testenv.OfControlPlane(f.ControlPlane))
	env.Create(t, machine)
	config := testenv.Config(machine)
	env.Create(t, config)
	f.create(t, map[string]string{"value": oldToken}, ownedBy(*metav1.NewControllerRef(config,
		bootstrapv1.GroupVersion.WithKind("KThreesConfig"))))
	_, err := f.reconcile()
	require.NoError(t, err)

	// The probe depends on the config as the token did: once it is gone, so would be the token.
	probe := testenv.Secret(f.Cluster, "probe", nil, ownedBy(*metav1.NewControllerRef(config,
		bootstrapv1.GroupVersion.WithKind("KThreesConfig"))))
	env.Create(t, probe)
	require.NoError(t, env.Client.Delete(context.Background(), config))
	require.Eventually(t, func() bool {
		return apierrors.IsNotFound(env.Client.Get(context.Background(), client.ObjectKeyFromObject(probe), &corev1.Secret{}))
	}, time.Minute, 100*time.Millisecond)

	require.Equal(t, oldToken, string(f.read(t).Data["value"]))
}

package custody

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
)

// The existing provider's Secrets become ours in one patch each: the values stay, and no machine is replaced.
func TestOperator_TakesOverTheSecretsOfTheExistingProvider(t *testing.T) {
	workloads := startCore(t, env)
	for version, others := range map[string][]metav1.OwnerReference{
		"v1beta1": nil,
		"v1beta2": {{APIVersion: "v1", Kind: "ConfigMap", Name: "notes"}}, // A human's.
	} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			o := newOperator(newStage(t), workloads, &schedule{})
			o.settle("one server", 1)
			before := list(o.stage, &clusterv1.MachineList{}).Items
			o.asOlderProvider(version, others)
			o.secrets = o.readSecrets()
			require.Len(o, o.secrets, 4)
			o.schedule = &schedule{}
			o.restart()

			o.settle("one server", 1)
			for secret, data := range o.secrets {
				require.Equalf(o, data, o.readSecrets()[secret], "the values in Secret %s", secret)
				require.Equalf(o, 1, o.schedule.count(http.MethodPatch, secret), "patches of Secret %s", secret)
			}
			require.Len(o, o.readSecrets(), 4, "K3s made the others itself")
			require.Equal(o, 1, o.schedule.count(http.MethodPatch, o.name+"-kubeconfig"))
			o.requireOwned(others)
			after := list(o.stage, &clusterv1.MachineList{}).Items
			require.Equal(o, before[0].UID, after[0].UID)

			o.scale(3)
			o.settle("three servers", 3)
			_, refused := o.servers.history()
			require.Empty(o, refused)
		})
	}
}

// asOlderProvider makes the Secrets what the existing provider leaves behind.
func (s *stage) asOlderProvider(version string, others []metav1.OwnerReference) {
	s.Helper()
	founder := list(s, &bootstrapv1.KThreesConfigList{}).Items[0]
	config := metav1.OwnerReference{
		APIVersion: "bootstrap.cluster.x-k8s.io/" + version, Kind: "KThreesConfig", Name: founder.Name, UID: founder.UID, Controller: ptr.To(true),
	}
	notes := &corev1.ConfigMap{ObjectMeta: s.metaOf("notes")}
	s.env.Create(s, notes)
	for i := range others {
		others[i].UID = notes.UID
	}
	for _, suffix := range custodySuffixes {
		secret := &corev1.Secret{ObjectMeta: s.metaOf(s.name + suffix)}
		s.env.Refresh(s, secret)
		require.NoError(s, s.env.Client.Delete(background, secret))
		switch suffix {
		case "-root", "-etcd-peer", "-proxy", "-sa":
			continue
		}
		delete(secret.Data, "agent-token")
		s.recreate(secret, clusterv1.ClusterSecretType, append([]metav1.OwnerReference{config}, others...))
	}
	kubeconfig := &corev1.Secret{ObjectMeta: s.metaOf(s.name + "-kubeconfig")}
	s.env.Refresh(s, kubeconfig)
	require.NoError(s, s.env.Client.Delete(background, kubeconfig))
	s.recreate(kubeconfig, corev1.SecretTypeOpaque, []metav1.OwnerReference{{
		APIVersion: "controlplane.cluster.x-k8s.io/" + version, Kind: "KThreesControlPlane", Name: s.name,
		UID: s.controlPlane().UID, Controller: ptr.To(true),
	}})
	s.change(func(cp *controlplanev1.KThreesControlPlane) {
		delete(cp.Annotations, controlplanev1.InitializedAnnotation)
	})
}

func (s *stage) recreate(secret *corev1.Secret, kind corev1.SecretType, owners []metav1.OwnerReference) {
	s.Helper()
	s.env.Create(s, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.name, Name: secret.Name, OwnerReferences: owners, Labels: map[string]string{clusterv1.ClusterNameLabel: s.name},
		},
		Type: kind, Data: secret.Data,
	})
}

// requireOwned checks that ours is the only controller and that no KThreesConfig is left among the owners.
func (s *stage) requireOwned(others []metav1.OwnerReference) {
	s.Helper()
	cp := s.controlPlane()
	for name := range s.secrets {
		secret := &corev1.Secret{}
		require.NoError(s, s.env.Client.Get(background, client.ObjectKey{Namespace: s.name, Name: name}, secret))
		require.True(s, metav1.IsControlledBy(secret, cp))
		require.Lenf(s, secret.OwnerReferences, 1+len(others), "owners of Secret %s", name)
		for _, other := range others {
			require.Contains(s, secret.OwnerReferences, other)
		}
	}
}

package custody

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
)

// losses are what is deleted from a cluster that lives, by the suffixes of the Secrets. Bootstrap data, which are made
// only once, are missing from then on. The root has no key on a
// server, and isn't needed once the cluster is founded.
var losses = [][]string{
	{"-ca"},
	{"-cca"},
	{"-etcd"},
	{"-etcd-peer"},
	{"-proxy"},
	{"-sa"},
	{"-ca", "-cca", "-etcd", "-etcd-peer", "-proxy", "-sa"},
	{"-token"},
	{"-token", "-ca", "-cca", "-etcd", "-etcd-peer", "-proxy", "-sa"},
	{"-token", bootstrapData},
	{"-token", "-ca", "-etcd", "-etcd-peer", "-proxy", "-sa"},
}

// bootstrapData stands for the bootstrap data of all machines.
const bootstrapData = "bootstrap data"

// putsBackWhatIsLost loses this and that; the same bytes come back from bootstrap data or from a server. What nobody has
// any more isn't made anew.
func putsBackWhatIsLost(s *stage) {
	s.Helper()
	for _, suffixes := range losses {
		s.Logf("lost: %s", strings.Join(suffixes, " "))
		s.lose(suffixes)
		s.awaitAgain(1, 1)
	}

	s.setToken("")
	s.awaitReason(controlplanev1.TokenAvailableCondition, controlplanev1.TokenInvalidReason)
	require.Empty(s, s.readSecrets()[s.name+"-token"]["value"], "what a human wrote stays")
	s.setToken(string(s.secrets[s.name+"-token"]["value"]))
	s.awaitSettled(1, 1)
	s.requireCustody()

	start := s.servers.stop()
	s.lose([]string{"-token"})
	s.awaitReason(controlplanev1.TokenAvailableCondition, controlplanev1.TokenLostReason)
	require.NotContains(s, s.readSecrets(), s.name+"-token", "no server can be asked")
	start()
	s.awaitAgain(1, 1)

	// Without bootstrap data, token and client CA there is nothing left to ask with. Each would bring the other back, so
	// that they have to go at once.
	s.pause(true)
	s.lose([]string{"-token", "-cca"})
	s.pause(false)
	s.awaitReason(controlplanev1.CertificatesAvailableCondition, controlplanev1.CertificatesLostReason)
	s.scale(3)
	s.awaitReason(controlplanev1.CertificatesAvailableCondition, controlplanev1.CertificatesLostReason)
	require.Len(s, s.readSecrets(), len(custodySuffixes)-2, "nothing is made")

	// A human puts the token back, which is on the servers' disks, and the rest follows.
	s.env.Create(s, &corev1.Secret{
		ObjectMeta: s.metaOf(s.name + "-token"), Type: clusterv1.ClusterSecretType, Data: s.secrets[s.name+"-token"],
	})
	s.awaitSettled(3, 1)
	s.requireCustody()
}

// awaitAgain waits until all Secrets are there again and the cluster is healthy with them.
func (s *stage) awaitAgain(servers, workers int) {
	s.Helper()
	s.await("what was lost", func() {}, func() error {
		if found := s.readSecrets(); len(found) != len(s.secrets) {
			return fmt.Errorf("%d Secrets of %d", len(found), len(s.secrets))
		}
		return s.settled(servers, workers)
	})
	s.requireCustody()
}

// lose deletes Secrets as a human does.
func (s *stage) lose(suffixes []string) {
	s.Helper()
	for _, suffix := range suffixes {
		name := s.name + suffix
		if suffix == bootstrapData {
			s.loseBootstrapData()
			continue
		}
		require.NoError(s, s.env.Client.Delete(background, &corev1.Secret{ObjectMeta: s.metaOf(name)}))
	}
}

func (s *stage) loseBootstrapData() {
	s.Helper()
	kept := slices.Collect(maps.Keys(s.secrets))
	for _, secret := range list(s, &corev1.SecretList{}).Items {
		if !slices.Contains(kept, secret.Name) && secret.Name != s.name+"-kubeconfig" {
			require.NoError(s, client.IgnoreNotFound(s.env.Client.Delete(background, &secret)))
		}
	}
}

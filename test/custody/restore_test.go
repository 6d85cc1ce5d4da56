package custody

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
	"github.com/capk3s/capk3s/test/totals"
)

// restores are what is tried with each cluster.
var restores = []struct {
	paused bool
	// late is the suffix of a Secret that comes late for sure.
	late string
}{
	{late: "-token"},
	{paused: true},
	{late: "-ca"},
}

// What a restore, and the loss of a part, may not break.
func TestRestore(t *testing.T) {
	startCore(t, env)
	run(t, newManager(t, env, "operator"))
	var orders atomic.Int64
	clusters := 3 * thoroughness
	t.Run("cases", func(t *testing.T) {
		for seed := range uint64(clusters) {
			t.Run(fmt.Sprintf("keeps the cluster in any order, seed %d", seed), func(t *testing.T) {
				t.Parallel()
				orders.Add(int64(keepsTheCluster(founded(t), rand.New(rand.NewPCG(seed, 0)))))
			})
		}
		for name, test := range map[string]func(*stage){
			"of what was deleted by hand gives the same bytes": putsBackWhatIsLost,
			"recovers what the garbage collector took":         recoversWhatTheGarbageCollectorTook,
			"without Machines founds nothing":                  foundsNothingWithoutMachines,
			"of an older token lets nobody join with it":       letsNobodyJoinWithAnOlderToken,
			"leaves a foreign Secret of our name":              func(s *stage) { leavesAForeignSecret(s, corev1.SecretTypeOpaque) },
			"leaves a foreign Secret of our name and our type": func(s *stage) { leavesAForeignSecret(s, clusterv1.ClusterSecretType) },
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(founded(t))
			})
		}
	})
	totals.Print("restore orders tried", "%d, with %d clusters", orders.Load(), clusters)
}

// In whatever order a backup comes back, and however late a part of it, there is no new token, no new CA and no
// second founding, and the cluster can grow afterwards.
func keepsTheCluster(s *stage, random *rand.Rand) (orders int) {
	s.Helper()
	for _, restore := range restores {
		s.restoreShuffled(random, restore.paused, restore.late)
	}
	s.grow()
	return len(restores)
}

// founded is a cluster with a server and a worker.
func founded(t *testing.T) *stage {
	t.Helper()
	s := newStage(t)
	s.addWorker(s.name + "-w0")
	s.awaitSettled(1, 1)
	s.remember()
	s.requireCustody()
	return s
}

func (s *stage) awaitSettled(servers, workers int) {
	s.Helper()
	s.await(fmt.Sprintf("%d servers and %d workers", servers, workers), func() {}, func() error { return s.settled(servers, workers) })
}

// restoreShuffled loses everything and restores it in a random order, some of it late.
func (s *stage) restoreShuffled(random *rand.Rand, paused bool, late string) {
	s.Helper()
	objects := mapped(s.backup(), velero)
	random.Shuffle(len(objects), func(i, j int) { objects[i], objects[j] = objects[j], objects[i] })
	tardy := map[*unstructured.Unstructured]bool{}
	for _, object := range objects {
		tardy[object] = late != "" && object.GetName() == s.name+late
	}
	for range random.IntN(4) {
		tardy[objects[random.IntN(len(objects))]] = true
	}
	var names []string
	for object := range tardy {
		if tardy[object] {
			names = append(names, object.GetKind()+" "+object.GetName())
		}
	}
	s.Logf("paused %t, late: %s", paused, strings.Join(names, ", "))
	for _, object := range objects {
		if object.GetKind() == "Cluster" {
			require.NoError(s, unstructured.SetNestedField(object.Object, paused, "spec", "paused"))
		}
	}
	before := list(s, &clusterv1.MachineList{}).Items
	s.wipe()
	s.restore(objects, random, func(object *unstructured.Unstructured) bool { return tardy[object] })
	if paused {
		s.pause(false)
	}
	s.awaitSettled(1, 1)
	s.requireCustody()
	require.Len(s, list(s, &clusterv1.MachineList{}).Items, len(before))
	for _, machine := range before {
		s.env.Refresh(s, &clusterv1.Machine{ObjectMeta: s.metaOf(machine.Name)})
	}
}

// grow adds a pair of servers, since etcd wants them odd, and a worker.
func (s *stage) grow() {
	s.Helper()
	s.scale(3)
	s.addWorker(s.name + "-w1")
	s.awaitSettled(3, 2)
	s.requireCustody()
}

// A backup that kept the UIDs of their owners: the real garbage collector takes the token and the CAs away, and the
// operator puts the same bytes back.
func recoversWhatTheGarbageCollectorTook(s *stage) {
	s.Helper()
	stale := mapped(s.backup(), func(object *unstructured.Unstructured) *unstructured.Unstructured {
		restored := velero(object)
		if object.GetKind() == "Secret" && s.isCustody(object.GetName()) {
			restored.SetOwnerReferences(object.GetOwnerReferences())
		}
		return restored
	})
	s.wipe()
	s.restore(stale, rand.New(rand.NewPCG(0, 0)), func(object *unstructured.Unstructured) bool {
		return object.GetKind() == "KThreesControlPlane"
	})
	s.awaitSettled(1, 1)
	require.NotContains(s, s.readSecrets(), s.name+"-root", "the garbage collector was there: no server has the root's key")
	delete(s.secrets, s.name+"-root")
	s.requireCustody()
	s.grow()
}

// Servers that the backup doesn't know of live on. Nobody founds a second cluster beside them.
func foundsNothingWithoutMachines(s *stage) {
	s.Helper()
	without := mapped(s.backup(), func(object *unstructured.Unstructured) *unstructured.Unstructured {
		switch object.GetKind() {
		case "Machine", "KThreesConfig", "GenericInfrastructureMachine":
			return nil
		}
		return velero(object)
	})
	s.wipe()
	s.restore(without, rand.New(rand.NewPCG(0, 0)), never)
	s.await("a word about the lost Machines", func() {}, func() error {
		message := conditions.GetMessage(s.controlPlane(), controlplanev1.ScalingUpCondition)
		if !strings.Contains(message, controlplanev1.AllowInitAnnotation) {
			return fmt.Errorf("it says %q", message)
		}
		return nil
	})
	require.Empty(s, list(s, &clusterv1.MachineList{}).Items)
	s.requireCustody()
}

// A Secret of another system has the very name of the server CA's.
func leavesAForeignSecret(s *stage, kind corev1.SecretType) {
	s.Helper()
	name := s.name + "-ca"
	objects := mapped(s.backup(), func(object *unstructured.Unstructured) *unstructured.Unstructured {
		if object.GetName() == name {
			return nil
		}
		return velero(object)
	})
	s.wipe()
	foreign := &corev1.Secret{
		ObjectMeta: s.metaOf(name), Type: kind,
		Data: map[string][]byte{"ca.crt": []byte("theirs"), "ca.key": []byte("theirs too")},
	}
	s.env.Create(s, foreign)
	s.restore(objects, rand.New(rand.NewPCG(0, 0)), never)
	s.awaitReason(controlplanev1.CertificatesAvailableCondition, controlplanev1.ForeignSecretReason)
	require.Contains(s, conditions.GetMessage(s.controlPlane(), controlplanev1.CertificatesAvailableCondition), name)

	s.scale(3)
	s.awaitReason(controlplanev1.CertificatesAvailableCondition, controlplanev1.ForeignSecretReason)
	after := &corev1.Secret{ObjectMeta: s.metaOf(name)}
	s.env.Refresh(s, after)
	require.Equal(s, foreign, after, "not even its metadata changed")
	require.Len(s, list(s, &clusterv1.MachineList{}).Items, 2, "nothing is made meanwhile")

	// Once it has another name, the CA comes back from a server.
	require.NoError(s, s.env.Client.Delete(background, after))
	s.awaitSettled(3, 1)
	s.requireCustody()
}

func (s *stage) awaitReason(condition, reason string) {
	s.Helper()
	s.await(condition+" with reason "+reason, func() {}, func() error {
		cp := s.controlPlane()
		if got := conditions.GetReason(cp, condition); got != reason || cp.Status.ObservedGeneration != cp.Generation {
			return fmt.Errorf("the reason is %q", got)
		}
		return nil
	})
}

// The update policy puts an older token over the one that the servers were rotated to.
func letsNobodyJoinWithAnOlderToken(s *stage) {
	s.Helper()
	const rotated = "0123456789abcdef0123456789abcdef"
	old := string(s.secrets[s.name+"-token"]["value"])
	s.servers.rotate(rotated)
	s.setToken(rotated)
	s.scale(3)
	s.awaitSettled(3, 1)

	s.setToken(old)
	s.awaitReason(controlplanev1.TokenAvailableCondition, controlplanev1.TokenDriftedReason)
	s.scale(5)
	s.addWorker(s.name + "-w2")
	s.await("a word from the worker", func() {}, func() error {
		config := &bootstrapv1.KThreesConfig{ObjectMeta: s.metaOf(s.name + "-w2")}
		s.env.Refresh(s, config)
		if got := conditions.GetReason(config, bootstrapv1.TokenAvailableCondition); got != controlplanev1.TokenDriftedReason {
			return fmt.Errorf("the reason is %q", got)
		}
		return nil
	})
	require.Len(s, list(s, &clusterv1.MachineList{}).Items, 5, "three servers and two workers: no server is made")

	s.setToken(rotated)
	s.awaitSettled(5, 2)
	_, refused := s.servers.history()
	require.Empty(s, refused)
}

// setToken changes the token's Secret as a human does.
func (s *stage) setToken(value string) {
	s.Helper()
	secret := &corev1.Secret{ObjectMeta: s.metaOf(s.name + "-token")}
	s.env.Refresh(s, secret)
	secret.Data["value"] = []byte(value)
	require.NoError(s, s.env.Client.Update(background, secret))
}

package custody

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
	"github.com/capk3s/capk3s/test/totals"
)

// apart is how many writes lie between two faults of one life. Over the lives of a round each write fails once.
const apart = 4

// A cluster's whole life goes well when any of the operator's writes fails, is done but its answer lost, or is the
// last thing that a process does.
func TestOperator_SurvivesAFaultAtEveryWrite(t *testing.T) {
	workloads := startCore(t, env)
	var points, processes atomic.Int64
	t.Run("lives", func(t *testing.T) {
		for round := range thoroughness {
			for first := 1; first <= apart; first++ {
				t.Run(fmt.Sprintf("round %d, from write %d", round, first), func(t *testing.T) {
					t.Parallel()
					o := newOperator(newStage(t), workloads, &schedule{shift: round, first: first, every: apart})
					live(o)
					points.Add(int64(len(o.schedule.hits)))
					processes.Add(int64(o.processes))
				})
			}
		}
	})
	totals.Print("crash points tried", "%d, with %d processes in %d lives of a cluster", points.Load(), processes.Load(), thoroughness*apart)
}

// live goes through the life of a cluster.
func live(o *operator) {
	o.Helper()
	o.Cleanup(func() {
		if o.Failed() {
			o.Logf("%d processes; faults: %v", o.processes, o.schedule.hits)
		}
	})
	o.settle("one server", 1)
	o.remember()
	o.requireCustody()

	o.scale(3)
	o.settle("three servers", 3)
	o.requireCustody()

	o.scale(1)
	o.settle("one server again", 1)
	o.requireCustody()

	o.change(func(cp *controlplanev1.KThreesControlPlane) {
		cp.Spec.KThreesConfigSpec.PreK3sCommands = []string{"true"}
	})
	o.settle("one new server", 1)
	o.requireCustody()

	o.asOlderProvider("v1beta2", nil)
	o.orphanMachines()
	o.secrets = o.readSecrets()
	o.await("adoption", o.step, o.adopted)
	o.settle("the same server", 1)
	o.requireCustody()

	require.NoError(o, o.env.Client.Delete(background, &clusterv1.Cluster{ObjectMeta: o.meta()}, client.PropagationPolicy("Background")))
	o.await("the end", o.step, o.gone)
	o.Logf("%d writes, %d processes", o.schedule.writes, o.processes)
}

func (o *operator) settle(what string, servers int) {
	o.Helper()
	o.await(what, o.step, func() error { return o.settled(servers, 0) })
}

// orphanMachines takes the owners of all Machines away.
func (s *stage) orphanMachines() {
	s.Helper()
	for _, machine := range list(s, &clusterv1.MachineList{}).Items {
		nobody := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"ownerReferences":null}}`))
		require.NoError(s, s.env.Client.Patch(background, &machine, nobody))
	}
}

// adopted says which Secret or Machine the control plane doesn't own yet.
func (s *stage) adopted() error {
	s.Helper()
	cp := s.controlPlane()
	for _, machine := range list(s, &clusterv1.MachineList{}).Items {
		if !metav1.IsControlledBy(&machine, cp) {
			return fmt.Errorf("Machine %s isn't adopted", machine.Name)
		}
	}
	for _, secret := range list(s, &corev1.SecretList{}).Items {
		if s.isCustody(secret.Name) && !metav1.IsControlledBy(&secret, cp) {
			return fmt.Errorf("Secret %s isn't adopted", secret.Name)
		}
	}
	return nil
}

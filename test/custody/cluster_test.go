package custody

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/test/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
	"github.com/capk3s/capk3s/test/testenv"
)

// patience is how long a step may take on a busy machine.
const patience = 3 * time.Minute

// stage is one cluster in a namespace of its own, of the same name.
type stage struct {
	*testing.T
	env     *testenv.Env
	name    string
	servers *workload

	// secrets are the token and the CAs as they must stay, by name.
	secrets map[string]map[string][]byte
}

// newStage creates the objects of a cluster with one server.
func newStage(t *testing.T, change ...func(*clusterv1.Cluster)) *stage {
	t.Helper()
	s := &stage{T: t, env: env, name: env.Namespace(t)}
	s.servers = newWorkload(t, s.name)
	all.add(s.servers)
	t.Cleanup(s.requireSilence)

	cluster := testenv.Cluster(s.name, s.name, func(c *clusterv1.Cluster) {
		c.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: "127.0.0.1", Port: s.servers.port}
		c.Spec.ControlPlaneRef.Name = s.name
		for _, f := range change {
			f(c)
		}
	})
	infra := infraObject(builder.GenericInfrastructureClusterKind)
	infra.SetNamespace(s.name)
	infra.SetName(s.name)
	template := builder.InfrastructureMachineTemplate(s.name, s.name).Build()
	unstructured.RemoveNestedField(template.Object, "status")
	env.Create(t, infra, template)
	env.Create(t, testenv.ControlPlane(cluster, func(cp *controlplanev1.KThreesControlPlane) {
		cp.Name = s.name
	}))
	env.Create(t, cluster)
	return s
}

func (s *stage) meta() metav1.ObjectMeta { return s.metaOf(s.name) }

func (s *stage) metaOf(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: s.name, Name: name}
}

func (s *stage) key() client.ObjectKey { return client.ObjectKey{Namespace: s.name, Name: s.name} }

func (s *stage) controlPlane() *controlplanev1.KThreesControlPlane {
	cp := &controlplanev1.KThreesControlPlane{}
	require.NoError(s, s.env.Client.Get(background, s.key(), cp))
	return cp
}

func (s *stage) change(change func(*controlplanev1.KThreesControlPlane)) {
	s.Helper()
	cp := s.controlPlane()
	before := cp.DeepCopy()
	change(cp)
	require.NoError(s, s.env.Client.Patch(background, cp, client.MergeFrom(before)))
}

func (s *stage) scale(replicas int32) {
	s.Helper()
	s.change(func(cp *controlplanev1.KThreesControlPlane) { cp.Spec.Replicas = ptr.To(replicas) })
}

// addWorker creates a worker's Machine.
func (s *stage) addWorker(name string) {
	s.Helper()
	cluster := &clusterv1.Cluster{}
	require.NoError(s, s.env.Client.Get(background, s.key(), cluster))
	machine := testenv.Machine(cluster, name)
	infra := infraObject(builder.GenericInfrastructureMachineKind)
	infra.SetNamespace(s.name)
	infra.SetName(name)
	infra.SetLabels(map[string]string{clusterv1.ClusterNameLabel: s.name})
	s.env.Create(s, infra, testenv.Config(machine), machine)
}

// list returns the objects of the stage's namespace.
func list[T client.ObjectList](s *stage, objects T) T {
	s.Helper()
	require.NoError(s, s.env.Client.List(background, objects, client.InNamespace(s.name)))
	return objects
}

// settled returns nil when there are so many servers and workers, healthy, up-to-date and with nothing beside them.
func (s *stage) settled(servers, workers int) error {
	cp := s.controlPlane()
	switch {
	case !conditions.IsTrue(cp, controlplanev1.AvailableCondition) || !conditions.IsTrue(cp, controlplanev1.EtcdClusterHealthyCondition),
		!conditions.IsTrue(cp, controlplanev1.MachinesUpToDateCondition),
		!conditions.IsTrue(cp, controlplanev1.TokenAvailableCondition) || !conditions.IsTrue(cp, controlplanev1.CertificatesAvailableCondition),
		cp.Status.ObservedGeneration != cp.Generation, int(ptr.Deref(cp.Status.ReadyReplicas, 0)) != servers:
		return fmt.Errorf("conditions: %s", summary(cp))
	}
	total := servers + workers
	machines := list(s, &clusterv1.MachineList{}).Items
	for i := range machines {
		if !machines[i].Status.NodeRef.IsDefined() || !machines[i].DeletionTimestamp.IsZero() {
			return fmt.Errorf("machine %s has no Node or is being deleted", machines[i].Name)
		}
	}
	configs := list(s, &bootstrapv1.KThreesConfigList{}).Items
	infra := list(s, s.infraMachines()).Items
	nodes := &corev1.NodeList{}
	require.NoError(s, env.Client.List(background, nodes, client.MatchingLabels{workloadLabel: s.name}))
	if len(machines) != total || len(configs) != total || len(infra) != total || len(nodes.Items) != total || s.servers.size() != servers {
		return fmt.Errorf("%d Machines, %d KThreesConfigs, %d infrastructure machines, %d Nodes, %d members",
			len(machines), len(configs), len(infra), len(nodes.Items), s.servers.size())
	}
	return nil
}

func (w *workload) size() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.members)
}

func (s *stage) infraMachines() *unstructured.UnstructuredList {
	l := &unstructured.UnstructuredList{}
	l.SetAPIVersion(builder.InfrastructureGroupVersion.String())
	l.SetKind(builder.GenericInfrastructureMachineKind + "List")
	return l
}

// gone returns nil when the Cluster and everything in it is deleted.
func (s *stage) gone() error {
	err := s.env.Client.Get(background, s.key(), &clusterv1.Cluster{})
	if !apierrors.IsNotFound(err) {
		return fmt.Errorf("the Cluster is still there: %w", err)
	}
	left := []string{}
	for _, secret := range list(s, &corev1.SecretList{}).Items {
		left = append(left, "Secret "+secret.Name)
	}
	for _, config := range list(s, &bootstrapv1.KThreesConfigList{}).Items {
		left = append(left, "KThreesConfig "+config.Name)
	}
	for _, infra := range list(s, s.infraMachines()).Items {
		left = append(left, "infrastructure machine "+infra.GetName())
	}
	for _, lock := range list(s, &corev1.ConfigMapList{}).Items {
		if strings.HasSuffix(lock.Name, "-lock") {
			left = append(left, "ConfigMap "+lock.Name)
		}
	}
	if len(left) > 0 {
		return fmt.Errorf("left behind: %s", strings.Join(left, ", "))
	}
	return nil
}

// await runs step until check returns nil.
func (s *stage) await(what string, step func(), check func() error) {
	s.Helper()
	start := time.Now()
	for looks := 1; ; looks++ {
		step()
		err := check()
		if err == nil {
			s.Logf("%s after %s and %d looks", what, time.Since(start).Round(time.Millisecond), looks)
			return
		}
		if time.Since(start) > patience {
			s.dump()
			require.NoErrorf(s, err, "%s: waiting for %s", s.name, what)
		}
		time.Sleep(pause)
	}
}

// pause between two looks.
const pause = 150 * time.Millisecond

// custodySuffixes are those of the Secrets that must never change.
var custodySuffixes = []string{"-token", "-root", "-ca", "-cca", "-etcd", "-etcd-peer", "-proxy", "-sa"}

// readSecrets returns the token and the CAs that exist.
func (s *stage) readSecrets() map[string]map[string][]byte {
	s.Helper()
	found := map[string]map[string][]byte{}
	for _, secret := range list(s, &corev1.SecretList{}).Items {
		if s.isCustody(secret.Name) {
			found[secret.Name] = secret.Data
		}
	}
	return found
}

func (s *stage) isCustody(name string) bool {
	for _, suffix := range custodySuffixes {
		if name == s.name+suffix {
			return true
		}
	}
	return false
}

// remember takes the token and the CAs of now as those that must stay.
func (s *stage) remember() {
	s.Helper()
	s.secrets = s.readSecrets()
	require.Len(s, s.secrets, len(custodySuffixes))
}

// requireCustody checks the invariants: the same bytes, one controller, one founding, nobody refused.
func (s *stage) requireCustody() {
	s.Helper()
	for name, data := range s.readSecrets() {
		require.Truef(s, maps.EqualFunc(s.secrets[name], data, func(a, b []byte) bool { return string(a) == string(b) }), "the bytes of Secret %s changed", name)
	}
	require.Len(s, s.readSecrets(), len(s.secrets))
	cp := s.controlPlane()
	for _, secret := range list(s, &corev1.SecretList{}).Items {
		if !s.isCustody(secret.Name) && secret.Name != s.name+"-kubeconfig" {
			continue
		}
		require.Lenf(s, secret.OwnerReferences, 1, "owners of Secret %s", secret.Name)
		require.Truef(s, metav1.IsControlledBy(&secret, cp), "Secret %s is controlled by the control plane", secret.Name)
	}
	require.True(s, string(s.secrets[s.name+"-token"]["value"]) == s.servers.currentToken(), "the servers use another token")
	founders, refused := s.servers.history()
	require.Lenf(s, founders, 1, "machines that were told to found the cluster")
	require.Empty(s, refused, "machines that could not join")
}

func summary(cp *controlplanev1.KThreesControlPlane) string {
	text := ""
	for _, condition := range cp.Status.Conditions {
		text += fmt.Sprintf("\n  %s=%s %s %s", condition.Type, condition.Status, condition.Reason, condition.Message)
	}
	return text
}

// dump logs what a reader of a failure needs.
func (s *stage) dump() {
	for _, m := range list(s, &clusterv1.MachineList{}).Items {
		s.Logf("Machine %s: data %v, provider %q, node %q, deleting %v", m.Name, m.Spec.Bootstrap.DataSecretName != nil, m.Spec.ProviderID, m.Status.NodeRef.Name, !m.DeletionTimestamp.IsZero())
		for _, c := range m.Status.Conditions {
			if c.Status != metav1.ConditionTrue {
				s.Logf("    %s=%s %s %s", c.Type, c.Status, c.Reason, c.Message)
			}
		}
	}
	for _, c := range list(s, &bootstrapv1.KThreesConfigList{}).Items {
		s.Logf("KThreesConfig %s: order %q, %s", c.Name, c.Annotations[bootstrapv1.OrderAnnotation], conditions.GetMessage(&c, bootstrapv1.ReadyCondition))
	}
	cp := &controlplanev1.KThreesControlPlane{}
	if s.env.Client.Get(context.Background(), s.key(), cp) == nil {
		s.Logf("KThreesControlPlane: %s", summary(cp))
	}
}

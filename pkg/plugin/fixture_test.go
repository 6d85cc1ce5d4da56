package plugin_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
	"github.com/capk3s/capk3s/pkg/certs"
	"github.com/capk3s/capk3s/pkg/plugin"
	"github.com/capk3s/capk3s/pkg/token"
	"github.com/capk3s/capk3s/test/testenv"
)

var env *testenv.Env

func TestMain(m *testing.M) { testenv.Main(m, &env) }

// fixture is a Cluster c with its control plane, token and certificates.
type fixture struct {
	kubeconfig   string
	cluster      *clusterv1.Cluster
	controlPlane *controlplanev1.KThreesControlPlane
	certificates *certs.Set
	token        *token.Token
}

func newFixture(t *testing.T, change ...func(*clusterv1.Cluster)) *fixture {
	t.Helper()
	f := &fixture{cluster: testenv.Cluster(env.Namespace(t), "c", change...), kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	require.NoError(t, os.WriteFile(f.kubeconfig, env.KubeConfig, 0o600))
	env.Create(t, f.cluster)
	f.controlPlane = testenv.ControlPlane(f.cluster)
	env.Create(t, f.controlPlane)
	return f
}

// keepCustody makes the Secrets as the control plane does.
func (f *fixture) keepCustody(t *testing.T) {
	t.Helper()
	ctx, recorder := context.Background(), events.NewFakeRecorder(100)
	var err error
	f.certificates, err = certs.Reconcile(ctx, certs.Input{
		Client: env.Client, APIReader: env.Client, Recorder: recorder, Cluster: f.cluster, ControlPlane: f.controlPlane, Now: time.Now,
	})
	require.NoError(t, err)
	f.token, err = token.Reconcile(ctx, token.Input{
		Client: env.Client, APIReader: env.Client, Recorder: recorder, Cluster: f.cluster, ControlPlane: f.controlPlane, Now: time.Now,
		DataTokens: func(context.Context) ([]token.Token, error) { return nil, nil },
	})
	require.NoError(t, err)
	require.NoError(t, certs.ReconcileKubeconfig(ctx, certs.KubeconfigInput{
		Client: env.Client, APIReader: env.Client, Recorder: recorder, Cluster: f.cluster, ControlPlane: f.controlPlane,
		Certificates: f.certificates, Now: time.Now,
	}))
}

// change changes a Secret of the cluster.
func (f *fixture) change(t *testing.T, name string, mutate func(*corev1.Secret)) {
	t.Helper()
	secret := testenv.Secret(f.cluster, name, nil)
	env.Refresh(t, secret)
	mutate(secret)
	require.NoError(t, env.Client.Update(context.Background(), secret))
}

// remove deletes a Secret of the cluster.
func (f *fixture) remove(t *testing.T, name string) {
	t.Helper()
	require.NoError(t, env.Client.Delete(context.Background(), testenv.Secret(f.cluster, name, nil)))
}

// ran is what a run of the plugin left.
type ran struct {
	code     int
	out, err string
}

// run runs the plugin in the cluster's namespace. Nothing of a Secret may ever be in what it prints.
func (f *fixture) run(t *testing.T, args ...string) ran {
	t.Helper()
	var out, errOut bytes.Buffer
	args = append(args, "--kubeconfig", f.kubeconfig, "-n", f.cluster.Namespace)
	r := ran{code: plugin.Run(context.Background(), args, &out, &errOut)}
	r.out, r.err = out.String(), errOut.String()
	f.requireNoSecrets(t, r.out+r.err)
	return r
}

// runJSON runs the plugin with -o json and decodes what it prints.
func runJSON[T any](t *testing.T, f *fixture, args ...string) (result T, r ran) {
	t.Helper()
	r = f.run(t, append(args, "-o", "json")...)
	require.NoErrorf(t, json.Unmarshal([]byte(r.out), &result), "%+v", r)
	return result, r
}

// requireNoSecrets looks for each line of each value of the namespace's Secrets.
func (f *fixture) requireNoSecrets(t *testing.T, printed string) {
	t.Helper()
	list := &corev1.SecretList{}
	require.NoError(t, env.Client.List(context.Background(), list, client.InNamespace(f.cluster.Namespace)))
	for _, secret := range list.Items {
		for key, value := range secret.Data {
			for _, line := range bytes.Split(value, []byte("\n")) {
				// Shorter ones are the words of YAML and PEM.
				if len(line) >= 30 {
					require.NotContainsf(t, printed, string(line), "a line of %s in Secret %s is printed", key, secret.Name)
				}
			}
		}
	}
}

// server makes a Machine of the control plane, with conditions by type.
func (f *fixture) server(t *testing.T, name string, statuses map[string]metav1.ConditionStatus) *clusterv1.Machine {
	t.Helper()
	machine := testenv.Machine(f.cluster, name, testenv.OfControlPlane(f.controlPlane), func(m *clusterv1.Machine) {
		m.Annotations = map[string]string{controlplanev1.EtcdMemberAnnotation: name + "-member"}
	})
	env.Create(t, machine)
	machine.Status.NodeRef.Name = name + "-node"
	machine.Status.NodeInfo = &corev1.NodeSystemInfo{KubeletVersion: testenv.Version}
	for conditionType, status := range statuses {
		machine.Status.Conditions = append(machine.Status.Conditions, metav1.Condition{
			Type: conditionType, Status: status, Reason: "Test", Message: "because of " + conditionType, LastTransitionTime: metav1.Now(),
		})
	}
	require.NoError(t, env.Client.Status().Update(context.Background(), machine))
	return machine
}

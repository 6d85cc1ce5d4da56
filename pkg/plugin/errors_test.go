package plugin_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capk3s/capk3s/pkg/plugin"
	"github.com/capk3s/capk3s/test/testenv"
)

func TestErrors_SayWhatIsWrongAndWhatToDo(t *testing.T) {
	f := newFixture(t)
	kubeadm := testenv.Cluster(f.cluster.Namespace, "kubeadm", func(c *clusterv1.Cluster) {
		c.Spec.ControlPlaneRef.Kind = "KubeadmControlPlane"
	})
	orphan := testenv.ControlPlane(testenv.Cluster(f.cluster.Namespace, "orphan"))
	env.Create(t, kubeadm, orphan)
	cases := map[string]struct {
		args []string
		says []string
	}{
		"unknown Cluster":       {[]string{"status", "nobody"}, []string{"there is no Cluster nobody in namespace " + f.cluster.Namespace, "-n"}},
		"unknown control plane": {[]string{"status", "k3cp/nobody"}, []string{"there is no KThreesControlPlane nobody", "-n"}},
		"other control plane":   {[]string{"status", "kubeadm"}, []string{"Cluster " + f.cluster.Namespace + "/kubeadm", "KubeadmControlPlane"}},
		"token of nobody":       {[]string{"token", "verify", "nobody"}, []string{"there is no Cluster nobody in namespace " + f.cluster.Namespace, "-n"}},
		"other kind's token":    {[]string{"token", "verify", "kubeadm"}, []string{"Cluster " + f.cluster.Namespace + "/kubeadm", "KubeadmControlPlane"}},
		"no Cluster":            {[]string{"status", "k3cp/orphan-control-plane"}, []string{"orphan-control-plane has no Cluster", "spec.controlPlaneRef"}},
		"a MachineDeployment":   {[]string{"rollout", "restart", "machinedeployment/w"}, []string{"clusterctl alpha rollout"}},
		"unknown kind":          {[]string{"status", "pod/x"}, []string{`unknown kind "pod"`, "cluster/NAME"}},
		"no name in it":         {[]string{"status", "cluster/"}, []string{`"cluster/" is no name`}},
		"no name":               {[]string{"status"}, []string{"wants one name"}},
		"two names":             {[]string{"status", "a", "b"}, []string{"wants one name", "got 2"}},
		"unknown output":        {[]string{"status", "c", "-o", "yaml"}, []string{`"yaml"`, "-o json"}},
		"unknown command":       {[]string{"rollout", "undo", "c"}, []string{`"undo"`, "--help"}},
		"unknown context":       {[]string{"status", "c", "--kubeconfig-context", "nowhere"}, []string{"nowhere", "--kubeconfig-context"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := f.run(t, tc.args...)
			assert.Equal(t, 2, r.code)
			assert.Empty(t, r.out)
			for _, text := range tc.says {
				assert.Contains(t, r.err, text)
			}
		})
	}
}

func TestErrors_NameTheClusterThatIsNoManagementCluster(t *testing.T) {
	// An API server without the custom resources of Cluster API: one whose answers are empty.
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, bareKubeconfig(t), 0o600))
	var out, errOut bytes.Buffer
	code := plugin.Run(context.Background(), []string{"status", "c", "--kubeconfig", kubeconfig}, &out, &errOut)
	assert.Equal(t, 2, code)
	assert.Contains(t, errOut.String(), "isn't a management cluster for K3s")
	assert.Contains(t, errOut.String(), "clusterctl init")
}

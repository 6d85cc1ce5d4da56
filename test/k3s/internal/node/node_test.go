package node

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/capk3s/capk3s/test/k3s/internal/config"
)

func TestParseLabels_RefusesWhatTheKubeletRefuses(t *testing.T) {
	for label, allowed := range map[string]bool{
		"pool=a":                              true,
		"example.com/pool=a":                  true,
		"topology.kubernetes.io/zone=z":       true,
		"node.kubernetes.io/x=y":              true,
		"sub.kubelet.kubernetes.io/x=y":       true,
		"node-role.kubernetes.io/worker=true": false,
		"kubernetes.io/x=y":                   false,
		"k8s.io/x=y":                          false,
		"x.k8s.io/y=z":                        false,
	} {
		_, err := parseLabels([]string{label})
		assert.Equal(t, allowed, err == nil, "%s: %v", label, err)
	}
}

func TestParseTaints(t *testing.T) {
	taints, err := parseTaints([]string{"a=b:NoSchedule,c:NoExecute"})
	require.NoError(t, err)
	assert.Equal(t, []corev1.Taint{
		{Key: "a", Value: "b", Effect: corev1.TaintEffectNoSchedule}, {Key: "c", Effect: corev1.TaintEffectNoExecute},
	}, taints)
	for _, wrong := range []string{"a", "a=b", "a=b:Sometimes", ":NoSchedule"} {
		_, err := parseTaints([]string{wrong})
		assert.Error(t, err, wrong)
	}
}

func TestNewSpec_CloudProvider(t *testing.T) {
	for name, row := range map[string]struct {
		disableCCM    bool
		args          []string
		uninitialized bool
		providerID    string
	}{
		"embedded":                {false, nil, true, ""},
		"disabled":                {true, []string{"provider-id=x://y"}, false, "x://y"},
		"external":                {true, []string{"cloud-provider=external"}, true, ""},
		"embedded, but overruled": {false, []string{"--cloud-provider="}, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			spec, err := NewSpec(&config.Config{NodeName: "n", KubeletArgs: row.args}, row.disableCCM)
			require.NoError(t, err)
			assert.Equal(t, row.providerID, spec.ProviderID)
			assert.Equal(t, row.uninitialized, len(spec.Taints) == 1 && spec.Taints[0].Key == UninitializedTaint)
		})
	}
}

func TestVisibleArgs_HidesTokens(t *testing.T) {
	got := visibleArgs([]string{"server", "--token=abc", "--cluster-init", "--agent-token", "def", "--tls-san=x", "-t=ghi"})
	assert.Equal(t, []string{
		"server", "--token", redacted, "--cluster-init", "--agent-token", redacted, "--tls-san", "x", "-t", redacted,
	}, got)
}

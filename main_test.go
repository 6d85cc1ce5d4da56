package main

import (
	"bytes"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/yamlprocessor"

	"github.com/capk3s/capk3s/hack/release"
)

func TestParseFlags_TakesWhatTheManifestsSay(t *testing.T) {
	files, err := release.Repository(release.Options{Version: "v0.1.0", Image: "image"})
	require.NoError(t, err)
	for name, want := range map[string]options{
		release.BootstrapComponents:    {controllers: []string{bootstrapControllers}, leaderElectionID: "capk3s-bootstrap"},
		release.ControlPlaneComponents: {controllers: []string{controlPlaneControllers}, leaderElectionID: "capk3s-control-plane"},
	} {
		t.Run(name, func(t *testing.T) {
			o, err := parseFlags(argsIn(t, files[name]))
			require.NoError(t, err)
			assert.Equal(t, want.controllers, o.controllers)
			assert.Equal(t, want.leaderElectionID, o.leaderElectionID)
			assert.True(t, o.leaderElect)
		})
	}
}

func TestParseFlags_NamesTheProvidersThereAre(t *testing.T) {
	_, err := parseFlags([]string{"--controllers=bootstrap,worker"})
	require.ErrorContains(t, err, `"worker" is unknown; use bootstrap or controlplane`)
}

// argsIn returns the arguments of the Deployment in a provider's components.
func argsIn(t *testing.T, components []byte) []string {
	t.Helper()
	processed, err := yamlprocessor.NewSimpleProcessor().Process(components, func(string) (string, error) { return "", io.EOF })
	require.NoError(t, err)
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(processed), 4096)
	for {
		deployment := &appsv1.Deployment{}
		require.NoError(t, decoder.Decode(deployment), "looking for the Deployment")
		if deployment.Kind == "Deployment" {
			return deployment.Spec.Template.Spec.Containers[0].Args
		}
	}
}

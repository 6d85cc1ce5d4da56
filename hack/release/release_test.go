package release

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

var options = Options{Version: "v0.1.0", Image: "registry.example.com/k3s/operator"}

// here is the platform of the tests, on which the plugin can be run.
const here = runtime.GOOS + "/" + runtime.GOARCH

// Two programs, since the order of a map may differ between runs only.
func TestRelease_IsTheSameBytesEachTime(t *testing.T) {
	program := filepath.Join(t.TempDir(), "release")
	build := exec.Command("go", "build", "-o", program, "./cmd/release")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	var runs []map[string]string
	for range 2 {
		dir := filepath.Join(t.TempDir(), "made", "by", "it")
		out, err := exec.Command(program, "--version=v0.1.0", "--out="+dir, "--plugin-platforms="+here).CombinedOutput()
		require.NoError(t, err, "%s", out)
		out, err = exec.Command(filepath.Join(dir, pluginFile(here)), "--help").CombinedOutput()
		require.NoError(t, err, "%s", out)
		assert.Contains(t, string(out), "clusterctl k3s [command]")
		runs = append(runs, contents(t, dir))
	}
	for _, name := range []string{BootstrapComponents, ControlPlaneComponents, MetadataFile, SBOMFile, ChecksumsFile, pluginFile(here)} {
		assert.Contains(t, runs[0], name)
	}
	assert.False(t, strings.Contains(runs[0][pluginFile(here)], source()), "the folder of the checkout is in the plugin")
	assert.Contains(t, runs[0][ChecksumsFile], "  "+pluginFile(here)+"\n")
	assert.Contains(t, runs[0][SBOMFile], "pkg:golang/github.com/spf13/cobra@", "the plugin's modules, too")
	for name := range runs[0] {
		assert.True(t, runs[0][name] == runs[1][name], "%s differs", name)
	}
	assert.Len(t, runs[1], len(runs[0]))
}

func TestBuild_HasTheTemplatesAsTheyAre(t *testing.T) {
	files, err := Build(options)
	require.NoError(t, err)
	templates := contents(t, filepath.Join("..", "..", "config", "templates"))
	assert.Contains(t, templates, "cluster-template-docker.yaml")
	assert.Contains(t, templates, "clusterclass-k3s.yaml")
	for name, content := range templates {
		assert.Equal(t, content, string(files[name]), name)
	}
}

func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, entry := range entries {
		content, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		require.NoError(t, err)
		files[entry.Name()] = string(content)
	}
	return files
}

func TestBuild_ChecksumsAreThoseOfTheFiles(t *testing.T) {
	files, err := Build(options)
	require.NoError(t, err)
	listed := map[string]string{}
	for _, line := range strings.Split(strings.TrimSpace(string(files[ChecksumsFile])), "\n") {
		sum, name, found := strings.Cut(line, "  ")
		require.True(t, found, line)
		listed[name] = sum
	}
	require.Len(t, listed, len(files)-1, "all but the list itself")
	for name, sum := range listed {
		digest := sha256.Sum256(files[name])
		assert.Equal(t, hex.EncodeToString(digest[:]), sum, name)
	}
}

func TestBuild_BothComponentsHaveTheImageOfTheRelease(t *testing.T) {
	files, err := Build(options)
	require.NoError(t, err)
	for _, name := range []string{BootstrapComponents, ControlPlaneComponents} {
		assert.Equal(t, 1, strings.Count(string(files[name]), "image: registry.example.com/k3s/operator:v0.1.0\n"), name)
		assert.NotContains(t, string(files[name]), ":dev", name)
	}
}

func TestBuild_SBOMListsWhatTheOperatorIsMadeOf(t *testing.T) {
	files, err := Build(options)
	require.NoError(t, err)
	bom := cyclonedx.BOM{}
	require.NoError(t, cyclonedx.NewBOMDecoder(strings.NewReader(string(files[SBOMFile])), cyclonedx.BOMFileFormatJSON).Decode(&bom))
	assert.Equal(t, "pkg:golang/github.com/capk3s/capk3s@v0.1.0", bom.Metadata.Component.PackageURL)
	names := map[string]bool{}
	for _, c := range *bom.Components {
		names[c.Name] = true
		require.Len(t, *c.Hashes, 1, c.Name)
		assert.Len(t, (*c.Hashes)[0].Value, 64, c.Name)
	}
	assert.True(t, names["sigs.k8s.io/cluster-api"])
	assert.False(t, names["github.com/CycloneDX/cyclonedx-go"], "what makes a release isn't a part of the operator")
}

func TestBuild_RefusesVersionsThatClusterctlWould(t *testing.T) {
	for version, message := range map[string]string{
		"0.1.0":  "write it like v0.1.0",
		"v0.1":   "write it like v0.1.0",
		"v9.9.0": "doesn't list the series 9.9",
	} {
		_, err := Build(Options{Version: version, Image: options.Image})
		require.ErrorContains(t, err, message, version)
	}
}

func TestBuild_RefusesAPlatformThatIsNone(t *testing.T) {
	_, err := Build(Options{Version: "v0.1.0", Image: options.Image, Platforms: []string{"linux"}})
	require.ErrorContains(t, err, `"linux" is no platform: write it like linux/amd64`)
}

func TestPluginFile_NamesThePlatform(t *testing.T) {
	assert.Equal(t, "clusterctl-k3s-darwin-arm64", pluginFile("darwin/arm64"))
	assert.Equal(t, "clusterctl-k3s-windows-amd64.exe", pluginFile("windows/amd64"))
}

func TestMetadata_IsOfTheContract(t *testing.T) {
	content, err := metadataFor("v0.1.0")
	require.NoError(t, err)
	var metadata struct {
		APIVersion, Kind string
		ReleaseSeries    []struct{ Contract string }
	}
	require.NoError(t, yaml.Unmarshal(content, &metadata))
	assert.Equal(t, "clusterctl.cluster.x-k8s.io/v1alpha3", metadata.APIVersion)
	assert.Equal(t, "Metadata", metadata.Kind)
	for _, series := range metadata.ReleaseSeries {
		assert.Equal(t, "v1beta2", series.Contract)
	}
}

package peer

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A spec that a newer Cluster API brings along has to be run, ported or given a reason.
func TestDocs_NameEverySpecOfClusterAPI(t *testing.T) {
	doc, err := os.ReadFile("../../docs/peer-specs.md")
	require.NoError(t, err)
	folder, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/cluster-api/test").Output()
	require.NoError(t, err)
	sources, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(folder)), "e2e", "*.go"))
	require.NoError(t, err)
	specs := 0
	for _, source := range sources {
		text, err := os.ReadFile(source)
		require.NoError(t, err)
		for _, spec := range regexp.MustCompile(`(?m)^func (\w+Spec)\(ctx `).FindAllStringSubmatch(string(text), -1) {
			assert.Contains(t, string(doc), "| `"+spec[1]+"` |")
			specs++
		}
	}
	require.Greater(t, specs, 15)
}

package release

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/blang/semver/v4"
	"sigs.k8s.io/yaml"
)

// metadataFor returns the metadata of the releases, which must list the version's series: clusterctl refuses to
// install a version that it doesn't.
func metadataFor(version string) ([]byte, error) {
	number, found := strings.CutPrefix(version, "v")
	parsed, err := semver.Parse(number)
	if err != nil || !found {
		return nil, fmt.Errorf("version %q is none: write it like v0.1.0", version)
	}
	content, err := os.ReadFile(filepath.Join(source(), MetadataFile))
	if err != nil {
		return nil, fmt.Errorf("reading the releases' metadata: %w", err)
	}
	var metadata struct {
		ReleaseSeries []struct{ Major, Minor uint64 }
	}
	if err := yaml.Unmarshal(content, &metadata); err != nil {
		return nil, fmt.Errorf("decoding %s: %w", MetadataFile, err)
	}
	for _, series := range metadata.ReleaseSeries {
		if series.Major == parsed.Major && series.Minor == parsed.Minor {
			return content, nil
		}
	}
	return nil, fmt.Errorf("%s doesn't list the series %d.%d of version %s: add it to releaseSeries",
		MetadataFile, parsed.Major, parsed.Minor, version)
}

package release

import (
	"fmt"
	"os"
	"path/filepath"
)

// addTemplates adds the templates of clusters and the ClusterClass as they are: clusterctl fills their variables in.
func (f Files) addTemplates() error {
	folder := filepath.Join(source(), "config", "templates")
	entries, err := os.ReadDir(folder)
	if err != nil {
		return fmt.Errorf("listing the templates: %w", err)
	}
	for _, entry := range entries {
		if f[entry.Name()], err = os.ReadFile(filepath.Join(folder, entry.Name())); err != nil {
			return fmt.Errorf("reading a template: %w", err)
		}
	}
	return nil
}

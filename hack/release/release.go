package release

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// The names that clusterctl looks for.
const (
	BootstrapComponents    = "bootstrap-components.yaml"
	ControlPlaneComponents = "control-plane-components.yaml"
	MetadataFile           = "metadata.yaml"
)

// The files that are for the users' eyes.
const (
	SBOMFile      = "sbom.cdx.json"
	ChecksumsFile = "SHA256SUMS"
)

// Options say what is to be released.
type Options struct {
	// Version of the release, for example v0.1.0.
	Version string
	// Image of the operator without its tag, which is the version.
	Image string
	// Platforms to compile clusterctl's plugin for, for example linux/amd64; see [Platforms].
	Platforms []string
}

// Files are a release: names and contents.
type Files map[string][]byte

// Build makes all files of a release.
func Build(o Options) (Files, error) {
	files, err := Repository(o)
	if err != nil {
		return nil, err
	}
	if err := files.addTemplates(); err != nil {
		return nil, err
	}
	if err := files.addPlugin(o.Platforms); err != nil {
		return nil, err
	}
	if files[SBOMFile], err = sbom(o); err != nil {
		return nil, err
	}
	files[ChecksumsFile] = files.checksums()
	return files, nil
}

// Repository makes what clusterctl reads when it installs the providers: the components of both and the metadata.
func Repository(o Options) (Files, error) {
	metadata, err := metadataFor(o.Version)
	if err != nil {
		return nil, err
	}
	files := Files{MetadataFile: metadata}
	for name, folder := range map[string]string{BootstrapComponents: "bootstrap", ControlPlaneComponents: "controlplane"} {
		if files[name], err = components(folder, o); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// WriteTo writes the files into a folder, which is made if need be.
func (f Files) WriteTo(folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("making the release's folder: %w", err)
	}
	for name, content := range f {
		var mode os.FileMode = 0o644
		if strings.HasPrefix(name, PluginName) {
			mode = 0o755
		}
		if err := os.WriteFile(filepath.Join(folder, name), content, mode); err != nil {
			return fmt.Errorf("writing the release: %w", err)
		}
	}
	return nil
}

// source returns the top folder of the repository.
func source() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..")
}

package release

import (
	"fmt"
	"path/filepath"

	"sigs.k8s.io/kustomize/api/filters/imagetag"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// imageInManifests is the image that the manifests in the repository name.
const imageInManifests = "ghcr.io/capk3s/capk3s"

// components renders the manifests of one provider.
func components(folder string, o Options) ([]byte, error) {
	objects, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).
		Run(filesys.MakeFsOnDisk(), filepath.Join(source(), "config", folder))
	if err != nil {
		return nil, fmt.Errorf("rendering config/%s: %w", folder, err)
	}
	err = objects.ApplyFilter(imagetag.Filter{
		ImageTag: types.Image{Name: imageInManifests, NewName: o.Image, NewTag: o.Version},
		FsSlice:  types.FsSlice{{Path: "spec/template/spec/containers[]/image"}},
	})
	if err != nil {
		return nil, fmt.Errorf("setting the image in config/%s: %w", folder, err)
	}
	content, err := objects.AsYaml()
	if err != nil {
		return nil, fmt.Errorf("encoding config/%s: %w", folder, err)
	}
	return content, nil
}

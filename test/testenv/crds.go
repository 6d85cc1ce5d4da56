package testenv

import (
	"fmt"
	"path/filepath"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// contractLabel is what Cluster API's kustomization adds to its CRDs: contract version and API version.
const contractLabel, contractVersion = "cluster.x-k8s.io/v1beta2", "v1beta2"

// customResources reads the CRDs of this project, of Cluster API core and those that the options ask for.
func customResources(o options) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	capi, err := moduleDir("sigs.k8s.io/cluster-api")
	if err != nil {
		return nil, err
	}
	dirs := append([]string{
		filepath.Join(repository(), "config", "crd", "bases"),
		filepath.Join(capi, "core", "config", "crd", "bases"),
	}, o.crdDirs...)
	read := envtest.CRDInstallOptions{Paths: dirs, CRDs: o.crds, ErrorIfPathMissing: true}
	if err := envtest.ReadCRDFiles(&read); err != nil {
		return nil, fmt.Errorf("reading the custom resource definitions: %w", err)
	}
	for _, crd := range read.CRDs {
		prepare(crd)
	}
	return read.CRDs, nil
}

// prepare takes away the conversion webhook, which no test serves, and adds Cluster API's contract label.
func prepare(crd *apiextensionsv1.CustomResourceDefinition) {
	crd.Spec.Conversion = nil
	if !strings.HasSuffix(crd.Spec.Group, "cluster.x-k8s.io") || crd.Labels[contractLabel] != "" {
		return
	}
	if crd.Labels == nil {
		crd.Labels = map[string]string{}
	}
	crd.Labels[contractLabel] = contractVersion
}

package controllers

import (
	"context"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
)

// specPaths are where the CRDs have the schema of a KThreesConfigSpec.
var specPaths = []struct {
	crd, version string
	path         []string
}{
	{"kthreesconfigs." + bootstrapv1.GroupVersion.Group, bootstrapv1.GroupVersion.Version, []string{"spec"}},
	{"kthreescontrolplanes." + controlplanev1.GroupVersion.Group, controlplanev1.GroupVersion.Version, []string{"spec", "kthreesConfigSpec"}},
}

// readSchemas reads the schemas that say which values are defaults, if any KThreesConfig differs from the control
// plane's: a release that adds a default must not replace machines.
func (r *Reconciler) readSchemas(ctx context.Context, s *scope) error {
	for _, config := range s.configs {
		if !sameConfig(config.Spec, s.controlPlane.Spec.KThreesConfigSpec, nil) {
			return r.readSpecSchemas(ctx, s)
		}
	}
	return nil
}

func (r *Reconciler) readSpecSchemas(ctx context.Context, s *scope) error {
	for _, at := range specPaths {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := r.APIReader.Get(ctx, client.ObjectKey{Name: at.crd}, crd); err != nil {
			return fmt.Errorf("reading CustomResourceDefinition %s: %w", at.crd, err)
		}
		if schema := schemaAt(crd, at.version, at.path); schema != nil {
			s.schemas = append(s.schemas, schema)
		}
	}
	return nil
}

// schemaAt is the schema of a field in one version of a kind; nil when there is none.
func schemaAt(crd *apiextensionsv1.CustomResourceDefinition, version string, path []string) *apiextensionsv1.JSONSchemaProps {
	for i := range crd.Spec.Versions {
		if v := &crd.Spec.Versions[i]; v.Name == version && v.Schema != nil {
			schema := v.Schema.OpenAPIV3Schema
			for _, name := range path {
				if schema == nil {
					return nil
				}
				schema = propertySchema(schema, name)
			}
			return schema
		}
	}
	return nil
}

// Command crdgen adds to the generated CRDs the rules that markers on Go types can't express well: those about the
// keys of an extraConfig, the settings that can't change, and the order of versions.
//
// Usage: crdgen FOLDER
package main

import (
	"fmt"
	"os"
	"path/filepath"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: crdgen FOLDER")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "crdgen:", err)
		os.Exit(1)
	}
}

func run(folder string) error {
	paths, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil {
		return err
	}
	if len(paths) == 0 {
		return fmt.Errorf("no CRD in %s", folder)
	}
	for _, path := range paths {
		if err := rewrite(path); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}

// rewrite adds the rules to the schemas of one CRD file. Everything else in it stays as it is.
func rewrite(path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	crd := map[string]any{}
	if err := yaml.Unmarshal(data, &crd); err != nil {
		return err
	}
	kind, _, _ := unstructured.NestedString(crd, "spec", "names", "kind")
	versions, _, err := unstructured.NestedSlice(crd, "spec", "versions")
	if err != nil {
		return err
	}
	for _, version := range versions {
		if err := addRules(kind, version.(map[string]any)); err != nil {
			return fmt.Errorf("kind %s: %w", kind, err)
		}
	}
	if err := unstructured.SetNestedSlice(crd, versions, "spec", "versions"); err != nil {
		return err
	}
	if data, err = yaml.Marshal(crd); err != nil {
		return err
	}
	return os.WriteFile(path, append([]byte("---\n"), data...), 0o644)
}

// addRules adds the rules to the schema of one version of a kind.
func addRules(kind string, version map[string]any) error {
	raw, found, err := unstructured.NestedMap(version, "schema", "openAPIV3Schema")
	if err != nil || !found {
		return fmt.Errorf("no schema: %w", err)
	}
	schema := &apiextensionsv1.JSONSchemaProps{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw, schema); err != nil {
		return err
	}
	refuseKeys(schema)
	if kind == "KThreesControlPlane" {
		orderVersions(schema)
		if err := keepCriticalSettings(schema); err != nil {
			return err
		}
	}
	if raw, err = runtime.DefaultUnstructuredConverter.ToUnstructured(schema); err != nil {
		return err
	}
	return unstructured.SetNestedMap(version, raw, "schema", "openAPIV3Schema")
}

package controllers

import (
	"encoding/json"
	"reflect"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
)

// specSchemas are the schemas that the API server holds for a KThreesConfigSpec. There are two, one in each
// provider's CRDs, and during an upgrade they differ.
type specSchemas []*apiextensionsv1.JSONSchemaProps

// sameConfig compares two specs as a user sees them: absent, null, empty and defaulted are alike.
func sameConfig(a, b bootstrapv1.KThreesConfigSpec, schemas specSchemas) bool {
	return reflect.DeepEqual(schemas.plain(asJSON(a)), schemas.plain(asJSON(b)))
}

// plain is a value without what says nothing.
func (schemas specSchemas) plain(value any) any {
	for _, schema := range schemas {
		value = withoutDefaults(value, schema)
	}
	return withoutEmpties(value)
}

func asJSON(spec bootstrapv1.KThreesConfigSpec) any {
	if spec.Format == bootstrapv1.CloudConfig {
		// The default of the bootstrap provider, in no schema.
		spec.Format = ""
	}
	raw, err := json.Marshal(spec)
	if err != nil {
		// The spec came from the API server, so that it can be encoded.
		return err.Error()
	}
	var value any
	if err := json.Unmarshal(raw, &value); err != nil {
		return err.Error()
	}
	return value
}

// withoutDefaults drops what the schema's defaults would put there, at every depth.
func withoutDefaults(value any, schema *apiextensionsv1.JSONSchemaProps) any {
	switch v := value.(type) {
	case map[string]any:
		kept := map[string]any{}
		for key, child := range v {
			of := propertySchema(schema, key)
			if of == nil {
				kept[key] = child
				continue
			}
			if c := withoutDefaults(child, of); !isDefault(c, of) {
				kept[key] = c
			}
		}
		return kept
	case []any:
		if schema.Items == nil || schema.Items.Schema == nil {
			return value
		}
		list := make([]any, len(v))
		for i := range v {
			list[i] = withoutDefaults(v[i], schema.Items.Schema)
		}
		return list
	}
	return value
}

// propertySchema is the schema of a map's value; nil when it has none.
func propertySchema(schema *apiextensionsv1.JSONSchemaProps, key string) *apiextensionsv1.JSONSchemaProps {
	if property, ok := schema.Properties[key]; ok {
		return &property
	}
	if schema.AdditionalProperties != nil {
		return schema.AdditionalProperties.Schema
	}
	return nil
}

// isDefault says whether a value, itself without defaults, is what the schema puts in the place of nothing.
func isDefault(value any, schema *apiextensionsv1.JSONSchemaProps) bool {
	if schema.Default == nil {
		return false
	}
	var fallback any
	if err := json.Unmarshal(schema.Default.Raw, &fallback); err != nil {
		return false
	}
	return reflect.DeepEqual(withoutEmpties(value), withoutEmpties(withoutDefaults(fallback, schema)))
}

// withoutEmpties drops nulls and empty maps, lists and strings from maps, at every depth; nil when nothing is left.
func withoutEmpties(value any) any {
	switch v := value.(type) {
	case map[string]any:
		kept := map[string]any{}
		for key, child := range v {
			if c := withoutEmpties(child); c != nil {
				kept[key] = c
			}
		}
		if len(kept) == 0 {
			return nil
		}
		return kept
	case []any:
		if len(v) == 0 {
			return nil
		}
		list := make([]any, len(v))
		for i := range v {
			list[i] = withoutEmpties(v[i])
		}
		return list
	case string:
		if v == "" {
			return nil
		}
	}
	return value
}

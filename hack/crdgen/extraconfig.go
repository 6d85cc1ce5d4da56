package main

import (
	"maps"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/utils/ptr"
)

// refusal says why a key may not be in an extraConfig and what to write instead.
type refusal struct {
	// schema of the key's value, so that a value of the usual type gets the message and not a type error.
	schema  apiextensionsv1.JSONSchemaProps
	message string
}

// refuseKeys walks the schema and declares, in each extraConfig, the keys that are refused there. The other keys and
// their values stay unknown to the schema and are preserved.
func refuseKeys(schema *apiextensionsv1.JSONSchemaProps) {
	for name, property := range schema.Properties {
		refuseKeys(&property)
		if extra, ok := property.Properties["extraConfig"]; ok {
			property.Properties["extraConfig"] = withRefusals(extra, name)
		}
		schema.Properties[name] = property
	}
}

// withRefusals returns the schema of the extraConfig in a serverConfig or an agentConfig. A rule that is always false
// sits on each refused key: it's evaluated only where the key is present.
func withRefusals(extra apiextensionsv1.JSONSchemaProps, parent string) apiextensionsv1.JSONSchemaProps {
	extra.AdditionalProperties = nil
	extra.XPreserveUnknownFields = ptr.To(true)
	extra.Properties = map[string]apiextensionsv1.JSONSchemaProps{}
	maps.Copy(extra.Properties, visibleKeys(parent))
	for key, refused := range refusals(parent) {
		property := refused.schema
		property.XValidations = apiextensionsv1.ValidationRules{{Rule: "false", Message: refused.message}}
		extra.Properties[key] = property
	}
	return extra
}

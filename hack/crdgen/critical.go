package main

import (
	"fmt"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/capk3s/capk3s/pkg/k3s"
)

// absent holds, for settings that K3s compares when a server joins, the CEL value that stands for their absence in
// OBJECT: K3s' default, or the operator's. Switches that aren't named here are off by default.
var absent = map[string]string{
	"cluster-cidr": "['10.42.0.0/16']",
	"service-cidr": "['10.43.0.0/16']",
	// K3s takes the tenth address of the first service-cidr; only the default's is known here.
	"cluster-dns": "(" + isSet("OBJECT", ".kthreesConfigSpec.serverConfig.serviceCidr") +
		" && OBJECT.kthreesConfigSpec.serverConfig.serviceCidr != ['10.43.0.0/16'] ? [] : ['10.43.0.10'])",
	"cluster-domain":              "'cluster.local'",
	"disable-cloud-controller":    "true",
	"egress-selector-mode":        "'agent'",
	"flannel-backend":             "'vxlan'",
	"secrets-encryption":          "(" + isSet("OBJECT", ".kthreesConfigSpec.profile") + ")",
	"secrets-encryption-provider": "'aescbc'",
}

// keepCriticalSettings makes the critical settings of a control plane immutable. The rules are on the spec, which is
// always there: on the fields themselves they would not see them come or go.
func keepCriticalSettings(schema *apiextensionsv1.JSONSchemaProps) error {
	spec := schema.Properties["spec"]
	for _, key := range k3s.ServerKeys() {
		if !key.Critical {
			continue
		}
		fallback, known := absent[key.Name]
		switch {
		case !known && key.Type == k3s.Bool:
			fallback = "false"
		case !known:
			return fmt.Errorf("critical setting %s: say in absent what its absence means", key.Name)
		}
		spec.XValidations = append(spec.XValidations, immutable(key.Owner, fallback))
	}
	schema.Properties["spec"] = spec
	return nil
}

// immutable returns the rule that a field of the kthreesConfigSpec, such as serverConfig.clusterDomain, keeps its
// value. Optional chaining would be shorter, but the API server can't tell how much comparing such values may cost.
func immutable(field, fallback string) apiextensionsv1.ValidationRule {
	path := ".kthreesConfigSpec." + field
	value := func(object string) string {
		return "(" + isSet(object, path) + " ? " + object + path + " : " + strings.ReplaceAll(fallback, "OBJECT", object) + ")"
	}
	return apiextensionsv1.ValidationRule{
		Rule: value("self") + " == " + value("oldSelf"),
		Message: field + " can't change: K3s lets no server join whose value differs from the others'. " +
			"Write the value that it had, or create a new cluster with the new value",
		FieldPath: path,
	}
}

// isSet returns the expression that is true if the field at that path of the object, and all above it, are there.
func isSet(object, path string) string {
	var tests []string
	for _, name := range strings.Split(strings.TrimPrefix(path, "."), ".") {
		object += "." + name
		tests = append(tests, "has("+object+")")
	}
	return "(" + strings.Join(tests, " && ") + ")"
}

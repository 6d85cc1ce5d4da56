package validation

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// crds are the four CRDs and what the commands of a user of Cluster API rely on.
var crds = map[string]struct {
	name, shortName string
	columns         []string
	status, scale   bool
}{
	"KThreesConfig": {
		name: "kthreesconfigs.bootstrap.cluster.x-k8s.io", shortName: "k3c", status: true,
		columns: []string{"Cluster", "Ready", "Paused", "Data secret created", "Age"},
	},
	"KThreesConfigTemplate": {
		name: "kthreesconfigtemplates.bootstrap.cluster.x-k8s.io", shortName: "k3ct",
		columns: []string{"ClusterClass", "Cluster", "Age"},
	},
	"KThreesControlPlane": {
		name: "kthreescontrolplanes.controlplane.cluster.x-k8s.io", shortName: "k3cp", status: true, scale: true,
		columns: []string{
			"Cluster", "Available", "Desired", "Current", "Ready", "Available", "Up-to-date", "Paused", "Initialized", "Age", "Version",
		},
	},
	"KThreesControlPlaneTemplate": {
		name: "kthreescontrolplanetemplates.controlplane.cluster.x-k8s.io", shortName: "k3cpt",
		columns: []string{"ClusterClass", "Age"},
	},
}

func TestCRD_HasWhatUsersOfClusterAPIExpect(t *testing.T) {
	for kind, want := range crds {
		t.Run(kind, func(t *testing.T) {
			crd := getCRD(t, kind)
			version := crd.Spec.Versions[0]
			assert.Equal(t, "v1beta3", crd.Labels["cluster.x-k8s.io/v1beta2"], "contract label")
			assert.Equal(t, apiextensionsv1.NamespaceScoped, crd.Spec.Scope)
			assert.Equal(t, []string{"cluster-api"}, crd.Spec.Names.Categories)
			assert.Equal(t, []string{want.shortName}, crd.Spec.Names.ShortNames)
			assert.Equal(t, kind+"List", crd.Spec.Names.ListKind)
			assert.Equal(t, "v1beta3", version.Name)
			assert.True(t, version.Storage && version.Served)

			var columns []string
			for _, column := range version.AdditionalPrinterColumns {
				columns = append(columns, column.Name)
			}
			assert.Equal(t, want.columns, columns)

			subresources := version.Subresources
			if subresources == nil {
				subresources = &apiextensionsv1.CustomResourceSubresources{}
			}
			assert.Equal(t, want.status, subresources.Status != nil, "status subresource")
			if want.scale {
				require.NotNil(t, subresources.Scale)
				assert.Equal(t, ".spec.replicas", subresources.Scale.SpecReplicasPath)
				assert.Equal(t, ".status.replicas", subresources.Scale.StatusReplicasPath)
				assert.Equal(t, ".status.selector", *subresources.Scale.LabelSelectorPath)
			} else {
				assert.Nil(t, subresources.Scale)
			}
		})
	}
}

// A rule without a test is one that may refuse everything, or nothing.
func TestCRD_EveryRuleHasARefusedCase(t *testing.T) {
	for kind := range crds {
		t.Run(kind, func(t *testing.T) {
			cases := refusedCases(kind)
			rules := rulesOf("", *getCRD(t, kind).Spec.Versions[0].Schema.OpenAPIV3Schema)
			require.NotEmpty(t, rules)
			for _, rule := range rules {
				tested := slices.ContainsFunc(cases, func(c refusal) bool {
					return c.field == rule.field && strings.Contains(rule.message, c.message)
				})
				assert.Truef(t, tested, "no refused case for the rule on %s: %s", rule.field, rule.message)
			}
		})
	}
}

// refusedCases returns what the tables of this package see refused for a kind.
func refusedCases(name string) []refusal {
	var cases []refusal
	for _, k := range kinds {
		for _, c := range slices.Concat(configCases, datastoreConfigCases) {
			if k.name == name {
				cases = append(cases, c.want.below(k.configPath))
			}
		}
	}
	switch name {
	case "KThreesConfigTemplate":
		cases = append(cases, configTemplateRefusal)
	case "KThreesControlPlaneTemplate":
		for _, c := range templateCases {
			cases = append(cases, c.want)
		}
	case "KThreesControlPlane":
		for _, c := range controlPlaneCases {
			cases = append(cases, c.want)
		}
		for _, c := range datastoreCases {
			cases = append(cases, c.want)
		}
		for _, c := range versionCases {
			cases = append(cases, c.want)
		}
		for _, c := range criticalCases {
			cases = append(cases, criticalRefusal(c.field))
		}
	}
	return slices.DeleteFunc(cases, func(c refusal) bool { return c == refusal{} })
}

// rulesOf returns the field and the message of each rule in a schema, but those about the keys of an extraConfig:
// they have a test that goes through all keys.
func rulesOf(path string, schema apiextensionsv1.JSONSchemaProps) []refusal {
	var rules []refusal
	if strings.HasSuffix(path, ".extraConfig") {
		return nil
	}
	for _, rule := range schema.XValidations {
		field := strings.TrimPrefix(path+rule.FieldPath, ".")
		rules = append(rules, refusal{field: field, message: rule.Message})
	}
	for name, property := range schema.Properties {
		rules = append(rules, rulesOf(path+"."+name, property)...)
	}
	if schema.Items != nil && schema.Items.Schema != nil {
		rules = append(rules, rulesOf(path+"[]", *schema.Items.Schema)...)
	}
	if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil {
		rules = append(rules, rulesOf(path+"{}", *schema.AdditionalProperties.Schema)...)
	}
	return rules
}

func getCRD(t *testing.T, kind string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	crd := &apiextensionsv1.CustomResourceDefinition{}
	require.NoError(t, env.Client.Get(context.Background(), client.ObjectKey{Name: crds[kind].name}, crd))
	return crd
}

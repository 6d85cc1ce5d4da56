package controllers

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
)

func TestSameConfig_TreatsAbsentNullAndEmptyAlike(t *testing.T) {
	cases := []struct {
		name string
		a, b string
		same bool
	}{
		{"absent and empty object", `{}`, `{"serverConfig":{},"agentConfig":{}}`, true},
		{"absent and null", `{}`, `{"files":null,"serverConfig":null}`, true},
		{"absent and empty list", `{}`, `{"preK3sCommands":[],"serverConfig":{"tlsSan":[]}}`, true},
		{"absent and empty string", `{}`, `{"agentConfig":{"nodeName":""}}`, true},
		{"extraConfig in another order", `{"serverConfig":{"extraConfig":{"a":1,"b":[true]}}}`, `{"serverConfig":{"extraConfig":{"b":[true],"a":1}}}`, true},
		{"absent and the default format", `{}`, `{"format":"cloud-config"}`, true},
		{"false is not absent", `{}`, `{"serverConfig":{"disableCloudController":false}}`, false},
		{"another command", `{"preK3sCommands":["a"]}`, `{"preK3sCommands":["b"]}`, false},
		{"commands in another order", `{"preK3sCommands":["a","b"]}`, `{"preK3sCommands":["b","a"]}`, false},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			var a, b bootstrapv1.KThreesConfigSpec
			require.NoError(t, json.Unmarshal([]byte(tc.a), &a))
			require.NoError(t, json.Unmarshal([]byte(tc.b), &b))
			assert.Equal(t, tc.same, sameConfig(a, b, nil))
			assert.Equal(t, tc.same, sameConfig(b, a, nil))
		})
	}
}

// TestSameConfig_HoldsForAnySpec takes random specs through what users, clients and the API server do to them:
// round trips, nulls and empties in the place of nothing, and a release that adds defaults. One leaf that really
// changes is seen all the same.
func TestSameConfig_HoldsForAnySpec(t *testing.T) {
	const specs = 500
	plain := specSchema(t, 0)
	changed := 0
	for seed := range uint64(specs) {
		random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // repeatable
		spec := randomValue(random, plain, 0)
		schema := plain.DeepCopy()
		addDefaults(random, schema)

		blurred := blur(random, runtime.DeepCopyJSONValue(spec), plain)
		defaulted := runtime.DeepCopyJSONValue(blurred)
		defaulting.Default(defaulted, structural(t, schema))
		a, b, c := decodeSpec(t, spec), decodeSpec(t, blurred), decodeSpec(t, defaulted)
		require.Truef(t, sameConfig(a, b, nil), "seed %d: %s\n%s", seed, encoded(spec), encoded(blurred))
		for _, schemas := range []specSchemas{{schema}, {plain, schema}, {schema, plain}} {
			require.Truef(t, sameConfig(a, c, schemas), "seed %d: %s\n%s", seed, encoded(spec), encoded(defaulted))
			require.True(t, sameConfig(c, a, schemas))
		}

		other := runtime.DeepCopyJSONValue(spec)
		if changeLeaf(random, other) {
			changed++
			d := decodeSpec(t, other)
			require.Falsef(t, sameConfig(a, d, specSchemas{schema}), "seed %d: %s\n%s", seed, encoded(spec), encoded(other))
		}
	}
	require.Greater(t, changed, specs/2)
	t.Logf("%d random specs, %d real changes", specs, changed)
}

// TestReconcile_AnAddedDefaultReplacesNoMachine starts a release whose CRDs have a new default over an existing server.
func TestReconcile_AnAddedDefaultReplacesNoMachine(t *testing.T) {
	cases := []struct {
		name string
		crds []int
	}{
		{name: "both providers are upgraded", crds: []int{0, 1}},
		{name: "the bootstrap provider comes first", crds: []int{0}},
		{name: "the control plane provider comes first", crds: []int{1}},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			f := newFixture(t, func(cp *controlplanev1.KThreesControlPlane) {
				cp.Spec.KThreesConfigSpec.ServerConfig.TLSSan = []string{"a"}
			})
			f.run(t, 3)
			require.True(t, conditions.IsTrue(&f.listMachines(t)[0], controlplanev1.MachineUpToDateCondition))
			for _, i := range tc.crds {
				addDefaultToCRD(t, i)
			}
			f.awaitDefault(t, tc.crds)

			f.run(t, 2)
			machines := f.listMachines(t)
			require.Len(t, machines, 1)
			assert.True(t, conditions.IsTrue(&machines[0], controlplanev1.MachineUpToDateCondition),
				conditions.GetMessage(&machines[0], controlplanev1.MachineUpToDateCondition))
			assert.True(t, conditions.IsFalse(f.controlPlane, controlplanev1.RollingOutCondition))

			before := f.controlPlane.DeepCopy()
			f.controlPlane.Spec.KThreesConfigSpec.ServerConfig.TLSSan = []string{"b"}
			require.NoError(t, env.Client.Patch(context.Background(), f.controlPlane, client.MergeFrom(before)))
			f.run(t, 1)
			assert.True(t, conditions.IsTrue(f.controlPlane, controlplanev1.RollingOutCondition), "a real change is seen")
		})
	}
}

// addDefaultToCRD adds a default to a field of the specs in one of the two CRDs until the test ends.
func addDefaultToCRD(t *testing.T, i int) {
	t.Helper()
	ctx := context.Background()
	crd := &apiextensionsv1.CustomResourceDefinition{}
	require.NoError(t, env.Client.Get(ctx, client.ObjectKey{Name: specPaths[i].crd}, crd))
	before := crd.DeepCopy()
	change := func(raw []byte) {
		schema := crd.Spec.Versions[0].Schema.OpenAPIV3Schema
		at := []*apiextensionsv1.JSONSchemaProps{schema}
		path := append(slices.Clone(specPaths[i].path), "serverConfig", "clusterDomain")
		for _, name := range path {
			at = append(at, propertySchema(at[len(at)-1], name))
		}
		at[len(at)-1].Default = nil
		if raw != nil {
			at[len(at)-1].Default = &apiextensionsv1.JSON{Raw: raw}
		}
		for j := len(path) - 1; j >= 0; j-- {
			at[j].Properties[path[j]] = *at[j+1]
		}
	}
	change([]byte(`"cluster.local"`))
	require.NoError(t, env.Client.Patch(ctx, crd, client.MergeFrom(before)))
	t.Cleanup(func() {
		before := crd.DeepCopy()
		change(nil)
		require.NoError(t, env.Client.Patch(ctx, crd, client.MergeFrom(before)))
	})
}

// awaitDefault waits until the API server puts the default where its CRD has it, and only there.
func (f *fixture) awaitDefault(t *testing.T, crds []int) {
	t.Helper()
	ctx := context.Background()
	wants := func(i int) string {
		if slices.Contains(crds, i) {
			return "cluster.local"
		}
		return ""
	}
	require.Eventually(t, func() bool {
		config := &bootstrapv1.KThreesConfig{}
		require.NoError(t, env.Client.Get(ctx, client.ObjectKeyFromObject(&f.listMachines(t)[0]), config))
		require.NoError(t, env.Client.Get(ctx, client.ObjectKeyFromObject(f.controlPlane), f.controlPlane))
		return config.Spec.ServerConfig.ClusterDomain == wants(0) && f.controlPlane.Spec.KThreesConfigSpec.ServerConfig.ClusterDomain == wants(1)
	}, time.Minute, 50*time.Millisecond)
}

// specSchema is the schema of a KThreesConfigSpec in one of the two CRDs.
func specSchema(t *testing.T, i int) *apiextensionsv1.JSONSchemaProps {
	t.Helper()
	crd := &apiextensionsv1.CustomResourceDefinition{}
	require.NoError(t, env.Client.Get(context.Background(), client.ObjectKey{Name: specPaths[i].crd}, crd))
	schema := schemaAt(crd, specPaths[i].version, specPaths[i].path)
	require.NotNil(t, schema)
	return schema
}

func structural(t *testing.T, schema *apiextensionsv1.JSONSchemaProps) *structuralschema.Structural {
	t.Helper()
	internal := &apiextensions.JSONSchemaProps{}
	require.NoError(t, apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(schema, internal, nil))
	s, err := structuralschema.NewStructural(internal)
	require.NoError(t, err)
	return s
}

// randomValue makes a value of a schema; what a real change is told by is never empty.
func randomValue(random *rand.Rand, schema *apiextensionsv1.JSONSchemaProps, depth int) any {
	switch schema.Type {
	case "object":
		value := map[string]any{}
		for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
			if property := schema.Properties[name]; random.IntN(3) == 0 {
				value[name] = randomValue(random, &property, depth+1)
			}
		}
		if schema.AdditionalProperties != nil {
			for range random.IntN(3) {
				value[fmt.Sprintf("key-%d", random.IntN(100))] = randomValue(random, schema.AdditionalProperties.Schema, depth+1)
			}
		}
		return value
	case "array":
		value := []any{}
		for range random.IntN(3) {
			value = append(value, randomValue(random, schema.Items.Schema, depth+1))
		}
		return value
	case "integer":
		return int64(1 + random.IntN(1000))
	case "boolean":
		return random.IntN(2) == 0
	}
	return fmt.Sprintf("text-%d", random.IntN(1000))
}

// blur puts nulls and empties where nothing is.
func blur(random *rand.Rand, value any, schema *apiextensionsv1.JSONSchemaProps) any {
	switch v := value.(type) {
	case map[string]any:
		for name, property := range schema.Properties {
			if child, ok := v[name]; ok {
				v[name] = blur(random, child, &property)
				continue
			}
			if random.IntN(3) == 0 {
				v[name] = map[string]any{"object": map[string]any{}, "array": []any{}, "string": ""}[property.Type]
			}
		}
	case []any:
		for i := range v {
			v[i] = blur(random, v[i], schema.Items.Schema)
		}
	}
	return value
}

// addDefaults gives a part of a schema's leaves a default.
func addDefaults(random *rand.Rand, schema *apiextensionsv1.JSONSchemaProps) {
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		property := schema.Properties[name]
		addDefaults(random, &property)
		fallback, ok := map[string]string{"object": "{}", "string": `"fallback"`, "integer": "7777", "boolean": "true"}[property.Type]
		// A key of a list's items has no default, as the API server sees to.
		if ok && random.IntN(3) == 0 && !slices.Contains(schema.Required, name) {
			property.Default = &apiextensionsv1.JSON{Raw: []byte(fallback)}
		}
		schema.Properties[name] = property
	}
	if schema.Items != nil {
		addDefaults(random, schema.Items.Schema)
	}
}

// changeLeaf gives one leaf another value; it says whether there was one.
func changeLeaf(random *rand.Rand, value any) bool {
	switch v := value.(type) {
	case map[string]any:
		names := slices.Sorted(maps.Keys(v))
		random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		for _, name := range names {
			switch leaf := v[name].(type) {
			case string:
				v[name] = leaf + "-changed"
			case int64:
				v[name] = leaf + 1000
			default:
				if !changeLeaf(random, leaf) {
					continue
				}
			}
			return true
		}
	case []any:
		for i := range v {
			if text, ok := v[i].(string); ok {
				v[i] = text + "-changed"
				return true
			}
			if changeLeaf(random, v[i]) {
				return true
			}
		}
	}
	return false
}

func decodeSpec(t *testing.T, value any) bootstrapv1.KThreesConfigSpec {
	t.Helper()
	spec := bootstrapv1.KThreesConfigSpec{}
	require.NoError(t, json.Unmarshal([]byte(encoded(value)), &spec))
	return spec
}

func encoded(value any) string {
	raw, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	return string(raw)
}

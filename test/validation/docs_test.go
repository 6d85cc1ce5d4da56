package validation

import (
	"bytes"
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
	"github.com/capk3s/capk3s/pkg/k3s"
)

func TestDocs_NameEveryConditionAndReason(t *testing.T) {
	doc, err := os.ReadFile("../../docs/conditions.md")
	require.NoError(t, err)
	for _, folder := range []string{"bootstrap", "controlplane"} {
		names := constantsOf(t, filepath.Join("../..", folder, "api/v1beta3/conditions.go"))
		require.NotEmpty(t, names)
		for _, name := range names {
			assert.Containsf(t, string(doc), "`"+name+"`", "of %s", folder)
		}
	}
}

// The documents list everything that the hardening switch sets.
func TestDocs_ListWhatTheProfileSets(t *testing.T) {
	doc, err := os.ReadFile("../../docs/bootstrap.md")
	require.NoError(t, err)
	kernel, err := os.ReadFile("../../bootstrap/internal/bootdata/hardening/sysctl.conf")
	require.NoError(t, err)
	set := strings.Fields(string(kernel))

	plain, err := k3s.ServerConfig(k3s.Server{}, &bootstrapv1.KThreesConfigSpec{})
	require.NoError(t, err)
	hardened, err := k3s.ServerConfig(k3s.Server{}, &bootstrapv1.KThreesConfigSpec{Profile: bootstrapv1.ProfileCIS})
	require.NoError(t, err)
	for key, value := range hardened {
		if reflect.DeepEqual(value, plain[key]) {
			continue
		}
		set = append(set, key)
		for _, flag := range hardened.Strings(key) {
			name, _, _ := strings.Cut(flag, "=")
			set = append(set, name)
		}
	}
	require.Greater(t, len(set), 15)
	for _, name := range set {
		assert.Contains(t, string(doc), "`"+name)
	}
}

// constantsOf returns the values of the constants in a file. Where one is another package's constant, its value is
// taken to be its own name without the suffix.
func constantsOf(t *testing.T, path string) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	require.NoError(t, err)
	var values []string
	ast.Inspect(file, func(node ast.Node) bool {
		spec, ok := node.(*ast.ValueSpec)
		if !ok {
			return true
		}
		switch value := spec.Values[0].(type) {
		case *ast.BasicLit:
			text, err := strconv.Unquote(value.Value)
			require.NoError(t, err)
			values = append(values, text)
		case *ast.SelectorExpr:
			name := strings.TrimPrefix(value.Sel.Name, "Machine")
			if strings.HasPrefix(value.Sel.Name, "Machines") {
				name = value.Sel.Name
			}
			values = append(values, strings.TrimSuffix(strings.TrimSuffix(name, "Condition"), "Reason"))
		}
		return true
	})
	return values
}

// The API server checks the samples as it would check a user's, unknown fields included.
func TestSamples_AreAcceptedByTheAPIServer(t *testing.T) {
	strict := client.WithFieldValidation(env.Client, "Strict")
	paths, err := filepath.Glob("../../docs/samples/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			namespace := env.Namespace(t)
			for _, obj := range objectsIn(t, path) {
				obj.SetNamespace(namespace)
				require.NoError(t, strict.Create(context.Background(), obj), "%s %s", obj.GetKind(), obj.GetName())
			}
		})
	}
}

func objectsIn(t *testing.T, path string) []*unstructured.Unstructured {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	return decode(t, data)
}

func decode(t *testing.T, data []byte) []*unstructured.Unstructured {
	t.Helper()
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	var objs []*unstructured.Unstructured
	for {
		obj := &unstructured.Unstructured{}
		err := decoder.Decode(obj)
		if err == io.EOF {
			return objs
		}
		require.NoError(t, err)
		objs = append(objs, obj)
	}
}

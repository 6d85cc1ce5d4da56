// Package validation tests what the CRDs refuse, against a real kube-apiserver and without the operator.
package validation

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
	"github.com/capk3s/capk3s/test/testenv"
)

var env *testenv.Env

func TestMain(m *testing.M) {
	testenv.Main(m, &env, testenv.WithCRDDirectory("test/sandbox/config/crd/bases"))
}

// refusal is what a refused request must say: a part of the message, and the field that it is about, with [] for the
// index of a list. The zero refusal stands for a request that is accepted.
type refusal struct {
	field, message string
}

var index = regexp.MustCompile(`\[\d+\]`)

// requireRefusal checks the outcome of a request. Other messages may come with the wanted one.
func requireRefusal(t *testing.T, want refusal, err error) {
	t.Helper()
	if want == (refusal{}) {
		require.NoError(t, err)
		return
	}
	require.Error(t, err, "the request must be refused")
	var status *apierrors.StatusError
	require.ErrorAs(t, err, &status)
	require.Truef(t, apierrors.IsInvalid(err), "must be refused as invalid: %v", err)
	for _, cause := range status.ErrStatus.Details.Causes {
		if index.ReplaceAllString(cause.Field, "[]") == want.field && strings.Contains(cause.Message, want.message) {
			return
		}
	}
	assert.Failf(t, "refused for another reason", "want %+v, got %v", want, err)
}

// requireNoMention checks that an error, if any, doesn't have the message.
func requireNoMention(t *testing.T, message string, err error) {
	t.Helper()
	if err != nil {
		require.NotContains(t, err.Error(), message)
	}
}

// kind is one of the four kinds: how to make a valid object of it and where its configuration of K3s is.
type kind struct {
	name       string
	configPath string
	object     func(namespace string) client.Object
	config     func(client.Object) *bootstrapv1.KThreesConfigSpec
}

var kinds = []kind{
	{
		name: "KThreesConfig", configPath: "spec",
		object: func(namespace string) client.Object {
			return &bootstrapv1.KThreesConfig{ObjectMeta: meta(namespace)}
		},
		config: func(obj client.Object) *bootstrapv1.KThreesConfigSpec {
			return &obj.(*bootstrapv1.KThreesConfig).Spec
		},
	},
	{
		name: "KThreesConfigTemplate", configPath: "spec.template.spec",
		object: func(namespace string) client.Object {
			return &bootstrapv1.KThreesConfigTemplate{ObjectMeta: meta(namespace), Spec: bootstrapv1.KThreesConfigTemplateSpec{
				Template: bootstrapv1.KThreesConfigTemplateResource{Spec: bootstrapv1.KThreesConfigSpec{Format: bootstrapv1.CloudConfig}},
			}}
		},
		config: func(obj client.Object) *bootstrapv1.KThreesConfigSpec {
			return &obj.(*bootstrapv1.KThreesConfigTemplate).Spec.Template.Spec
		},
	},
	{
		name: "KThreesControlPlane", configPath: "spec.kthreesConfigSpec",
		object: func(namespace string) client.Object { return controlPlane(namespace) },
		config: func(obj client.Object) *bootstrapv1.KThreesConfigSpec {
			return &obj.(*controlplanev1.KThreesControlPlane).Spec.KThreesConfigSpec
		},
	},
	{
		name: "KThreesControlPlaneTemplate", configPath: "spec.template.spec.kthreesConfigSpec",
		object: func(namespace string) client.Object { return controlPlaneTemplate(namespace) },
		config: func(obj client.Object) *bootstrapv1.KThreesConfigSpec {
			return &obj.(*controlplanev1.KThreesControlPlaneTemplate).Spec.Template.Spec.KThreesConfigSpec
		},
	},
}

func meta(namespace string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, GenerateName: "c-"}
}

// controlPlane returns a valid control plane with one replica.
func controlPlane(namespace string) *controlplanev1.KThreesControlPlane {
	obj := testenv.ControlPlane(testenv.Cluster(namespace, "c"))
	obj.ObjectMeta = meta(namespace)
	return obj
}

// controlPlaneTemplate returns a valid template.
func controlPlaneTemplate(namespace string) *controlplanev1.KThreesControlPlaneTemplate {
	obj := &controlplanev1.KThreesControlPlaneTemplate{ObjectMeta: meta(namespace)}
	obj.Spec.Template.Spec.KThreesConfigSpec.Format = bootstrapv1.CloudConfig
	return obj
}

// requireOnCreateAndUpdate checks that an object that change was applied to is refused, or accepted, both as a new
// object and as the new state of a valid one.
func requireOnCreateAndUpdate(t *testing.T, want refusal, object func() client.Object, change func(client.Object)) {
	t.Helper()
	ctx := context.Background()

	created := object()
	change(created)
	requireRefusal(t, want, env.Client.Create(ctx, created))

	updated := object()
	require.NoError(t, env.Client.Create(ctx, updated), "creating the valid object")
	change(updated)
	err := env.Client.Update(ctx, updated)
	if immutable := new(apierrors.StatusError); want == (refusal{}) && errors.As(err, &immutable) {
		// Some accepted values can only be set at creation; that is tested on its own.
		requireOnlyImmutable(t, immutable)
		return
	}
	requireRefusal(t, want, err)
}

func requireOnlyImmutable(t *testing.T, err *apierrors.StatusError) {
	t.Helper()
	for _, cause := range err.ErrStatus.Details.Causes {
		require.Contains(t, cause.Message, "can't change")
	}
}

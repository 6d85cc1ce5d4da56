package validation

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
)

type controlPlaneCase struct {
	name   string
	change func(*controlplanev1.KThreesControlPlane)
	want   refusal
}

// controlPlaneCases hold for a control plane on create and on update.
var controlPlaneCases = []controlPlaneCase{
	{"one replica", replicas(1), refusal{}},
	{"three replicas", replicas(3), refusal{}},
	{"no replicas", replicas(0), refusal{"spec.replicas", "replicas must be 1 or more"}},
	{"fewer than no replicas", replicas(-1), refusal{"spec.replicas", "replicas must be 1 or more"}},
	{"two replicas", replicas(2), refusal{"spec.replicas", "replicas must be odd"}},

	{"surge", surge(3, intstr.FromInt32(1)), refusal{}},
	{"no surge", surge(3, intstr.FromInt32(0)), refusal{}},
	{"no surge with one replica", surge(1, intstr.FromInt32(0)), refusal{"spec", "needs 3 or more replicas"}},
	{"surge of two", surge(3, intstr.FromInt32(2)), refusal{maxSurgePath, "must be the number 0 or 1"}},
	{"surge in percent", surge(3, intstr.FromString("50%")), refusal{maxSurgePath, "must be the number 0 or 1"}},
	{"surge as text", surge(3, intstr.FromString("1")), refusal{maxSurgePath, "must be the number 0 or 1"}},

	{"version", version("v1.36.3+k3s1"), refusal{}},
	{"release candidate", version("v1.37.0-rc2+k3s1"), refusal{}},
	{"version without v", version("1.36.3+k3s1"), refusal{"spec.version", versionForm}},
	{"version of Kubernetes", version("v1.36.3"), refusal{"spec.version", versionForm}},
	{"version of RKE2", version("v1.36.3+rke2r1"), refusal{"spec.version", versionForm}},
	{"image tag", version("v1.36.3-k3s1"), refusal{"spec.version", versionForm}},
	{"version without patch", version("v1.36+k3s1"), refusal{"spec.version", versionForm}},
	{"version with leading zero", version("v1.036.3+k3s1"), refusal{"spec.version", versionForm}},
	{"channel", version("stable"), refusal{"spec.version", versionForm}},
	{"text after the version", version("v1.36.3+k3s1 "), refusal{"spec.version", versionForm}},

	{"naming", naming("{{ .cluster.name }}-{{- .random -}}"), refusal{}},
	{"naming without random", naming("{{ .cluster.name }}"), refusal{"spec.machineNaming.template", "must contain {{ .random }}"}},

	{"node name of the instance", nodeName("cp-{{ ds.meta_data.local_hostname }}"), refusal{}},
	{"one node name for all", nodeName("server"), refusal{"spec", "a name of its own"}},

	{
		"taint that Cluster API manages", func(c *controlplanev1.KThreesControlPlane) {
			c.Spec.MachineTemplate.Spec.Taints = []clusterv1.MachineTaint{{
				Key: "a", Effect: "NoSchedule", Propagation: clusterv1.MachineTaintPropagationAlways,
			}}
		}, refusal{},
	},
	{
		"infrastructure without kind", func(c *controlplanev1.KThreesControlPlane) {
			c.Spec.MachineTemplate.Spec.InfrastructureRef.Kind = ""
		}, refusal{"spec.machineTemplate.spec.infrastructureRef.kind", "Required value"},
	},
}

const (
	maxSurgePath = "spec.rollout.strategy.rollingUpdate.maxSurge"
	versionForm  = "for example v1.36.3+k3s1"
)

func replicas(n int32) func(*controlplanev1.KThreesControlPlane) {
	return func(c *controlplanev1.KThreesControlPlane) { c.Spec.Replicas = ptr.To(n) }
}

func version(v string) func(*controlplanev1.KThreesControlPlane) {
	return func(c *controlplanev1.KThreesControlPlane) { c.Spec.Version = v }
}

func surge(n int32, maxSurge intstr.IntOrString) func(*controlplanev1.KThreesControlPlane) {
	return func(c *controlplanev1.KThreesControlPlane) {
		c.Spec.Replicas = ptr.To(n)
		c.Spec.Rollout.Strategy.RollingUpdate.MaxSurge = &maxSurge
	}
}

func naming(template string) func(*controlplanev1.KThreesControlPlane) {
	return func(c *controlplanev1.KThreesControlPlane) { c.Spec.MachineNaming.Template = template }
}

func nodeName(name string) func(*controlplanev1.KThreesControlPlane) {
	return func(c *controlplanev1.KThreesControlPlane) { c.Spec.KThreesConfigSpec.AgentConfig.NodeName = name }
}

// externalDatastore makes the servers use a datastore other than the embedded etcd.
func externalDatastore(c *controlplanev1.KThreesControlPlane) {
	c.Spec.KThreesConfigSpec.ServerConfig.Datastore.Endpoint = "mysql://db"
}

// extraDatastore does so in the way there was before the field.
func extraDatastore(c *controlplanev1.KThreesControlPlane) {
	c.Spec.KThreesConfigSpec.ServerConfig.Datastore = bootstrapv1.DatastoreSpec{}
	c.Spec.KThreesConfigSpec.ServerConfig.ExtraConfig = bootstrapv1.ExtraConfig{
		"datastore-endpoint": apiextensionsv1.JSON{Raw: []byte(`"mysql://db"`)},
	}
}

func TestControlPlane_IsCheckedOnCreateAndUpdate(t *testing.T) {
	namespace := env.Namespace(t)
	for _, c := range controlPlaneCases {
		t.Run(c.name, func(t *testing.T) {
			requireOnCreateAndUpdate(t, c.want,
				func() client.Object { return controlPlane(namespace) },
				func(obj client.Object) { c.change(obj.(*controlplanev1.KThreesControlPlane)) })
		})
	}
}

// templateCases are those of a control plane that a template has the fields for.
var templateCases = []struct {
	name   string
	change func(*controlplanev1.KThreesControlPlaneTemplateResourceSpec)
	want   refusal
}{
	{"surge", func(s *controlplanev1.KThreesControlPlaneTemplateResourceSpec) {
		s.Rollout.Strategy.RollingUpdate.MaxSurge = ptr.To(intstr.FromInt32(0))
	}, refusal{}},
	{"surge of two", func(s *controlplanev1.KThreesControlPlaneTemplateResourceSpec) {
		s.Rollout.Strategy.RollingUpdate.MaxSurge = ptr.To(intstr.FromInt32(2))
	}, refusal{"spec.template." + maxSurgePath, "must be the number 0 or 1"}},
	{"naming", func(s *controlplanev1.KThreesControlPlaneTemplateResourceSpec) {
		s.MachineNaming.Template = "{{ .random }}"
	}, refusal{}},
	{"naming without random", func(s *controlplanev1.KThreesControlPlaneTemplateResourceSpec) {
		s.MachineNaming.Template = "random"
	}, refusal{"spec.template.spec.machineNaming.template", "must contain {{ .random }}"}},
	{"one node name for all", func(s *controlplanev1.KThreesControlPlaneTemplateResourceSpec) {
		s.KThreesConfigSpec.AgentConfig.NodeName = "server"
	}, refusal{"spec.template.spec", "a name of its own"}},
}

func TestControlPlaneTemplate_IsCheckedOnCreateAndUpdate(t *testing.T) {
	namespace := env.Namespace(t)
	for _, c := range templateCases {
		t.Run(c.name, func(t *testing.T) {
			requireOnCreateAndUpdate(t, c.want,
				func() client.Object { return controlPlaneTemplate(namespace) },
				func(obj client.Object) {
					c.change(&obj.(*controlplanev1.KThreesControlPlaneTemplate).Spec.Template.Spec)
				})
		})
	}
}

// configTemplateRefusal is what a template for workers refuses besides configCases.
var configTemplateRefusal = refusal{"spec.template", "a name of its own"}

func TestConfigTemplate_RefusesOneNodeNameForAll(t *testing.T) {
	template := kinds[1]
	obj := template.object(env.Namespace(t))
	template.config(obj).AgentConfig.NodeName = "worker"
	requireRefusal(t, configTemplateRefusal, env.Client.Create(context.Background(), obj))
	template.config(obj).AgentConfig.NodeName = "{{ ds.meta_data.local_hostname }}"
	require.NoError(t, env.Client.Create(context.Background(), obj))
}

func TestControlPlane_DefaultsToOneReplica(t *testing.T) {
	obj := controlPlane(env.Namespace(t))
	obj.Spec.Replicas = nil
	require.NoError(t, env.Client.Create(context.Background(), obj))
	require.Equal(t, ptr.To[int32](1), obj.Spec.Replicas)
}

// scaleCases change the replicas of an existing control plane, as kubectl scale and autoscalers do.
var scaleCases = []struct {
	name  string
	given func(*controlplanev1.KThreesControlPlane)
	to    int32
	want  refusal
}{
	{"up", replicas(1), 3, refusal{}},
	{"down", replicas(3), 1, refusal{}},
	{"to an even number", replicas(3), 2, refusal{"spec.replicas", "replicas must be odd"}},
	{"to zero", replicas(1), 0, refusal{"spec.replicas", "replicas must be 1 or more"}},
	{"to an even number with an external datastore", externalDatastore, 2, refusal{}},
	{"to zero with an external datastore", externalDatastore, 0, refusal{"spec.replicas", "replicas must be 1 or more"}},
	{"down without surge", surge(5, intstr.FromInt32(0)), 3, refusal{}},
	{"down to one without surge", surge(3, intstr.FromInt32(0)), 1, refusal{"spec", "needs 3 or more replicas"}},
}

func TestControlPlane_IsCheckedOnScale(t *testing.T) {
	namespace := env.Namespace(t)
	for _, c := range scaleCases {
		t.Run(c.name, func(t *testing.T) {
			ctx := context.Background()
			obj := controlPlane(namespace)
			c.given(obj)
			require.NoError(t, env.Client.Create(ctx, obj))

			scale := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: c.to}}
			requireRefusal(t, c.want, env.Client.SubResource("scale").Update(ctx, obj, client.WithSubResourceBody(scale)))

			env.Refresh(t, obj)
			require.Equal(t, c.want == refusal{}, *obj.Spec.Replicas == c.to, "replicas changed")
		})
	}
}

// datastoreCases change where an existing control plane keeps its data.
var datastoreCases = []struct {
	name          string
	given, change func(*controlplanev1.KThreesControlPlane)
	want          refusal
}{
	{"to an external datastore", nothing, externalDatastore, refusal{"spec", "can't move between"}},
	{"to the embedded etcd", externalDatastore, func(c *controlplanev1.KThreesControlPlane) {
		c.Spec.KThreesConfigSpec.ServerConfig.Datastore = bootstrapv1.DatastoreSpec{}
	}, refusal{"spec", "can't move between"}},
	{"to another endpoint", externalDatastore, func(c *controlplanev1.KThreesControlPlane) {
		c.Spec.KThreesConfigSpec.ServerConfig.Datastore = bootstrapv1.DatastoreSpec{EndpointFrom: fromSecret}
	}, refusal{}},
	{"to an external datastore in extraConfig", nothing, extraDatastore, refusal{"spec", "can't move between"}},
	{"from extraConfig to the field", extraDatastore, func(c *controlplanev1.KThreesControlPlane) {
		c.Spec.KThreesConfigSpec.ServerConfig.ExtraConfig = nil
		externalDatastore(c)
	}, refusal{}},
	{"from the field to extraConfig", externalDatastore, extraDatastore, refusal{}},
}

func nothing(*controlplanev1.KThreesControlPlane) {}

func TestControlPlane_KeepsItsDatastore(t *testing.T) {
	namespace := env.Namespace(t)
	for _, c := range datastoreCases {
		t.Run(c.name, func(t *testing.T) {
			obj := controlPlane(namespace)
			c.given(obj)
			require.NoError(t, env.Client.Create(context.Background(), obj))
			c.change(obj)
			requireRefusal(t, c.want, env.Client.Update(context.Background(), obj))
		})
	}
}

package validation

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/ptr"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
)

// criticalCases are the settings that K3s compares when a server joins, with their default and another value.
var criticalCases = []struct {
	field         string
	usual, others func(*bootstrapv1.ServerConfig)
}{
	{
		"clusterCidr",
		func(s *bootstrapv1.ServerConfig) { s.ClusterCidr = []string{"10.42.0.0/16"} },
		func(s *bootstrapv1.ServerConfig) { s.ClusterCidr = []string{"10.44.0.0/16"} },
	},
	{
		"serviceCidr",
		func(s *bootstrapv1.ServerConfig) { s.ServiceCidr = []string{"10.43.0.0/16"} },
		func(s *bootstrapv1.ServerConfig) { s.ServiceCidr = []string{"10.45.0.0/16"} },
	},
	{
		"clusterDNS",
		func(s *bootstrapv1.ServerConfig) { s.ClusterDNS = []string{"10.43.0.10"} },
		func(s *bootstrapv1.ServerConfig) { s.ClusterDNS = []string{"10.43.0.53"} },
	},
	{
		"clusterDomain",
		func(s *bootstrapv1.ServerConfig) { s.ClusterDomain = "cluster.local" },
		func(s *bootstrapv1.ServerConfig) { s.ClusterDomain = "example.org" },
	},
	{
		"flannelBackend",
		func(s *bootstrapv1.ServerConfig) { s.FlannelBackend = "vxlan" },
		func(s *bootstrapv1.ServerConfig) { s.FlannelBackend = "none" },
	},
	{
		"flannelIPv6Masq",
		func(s *bootstrapv1.ServerConfig) { s.FlannelIPv6Masq = ptr.To(false) },
		func(s *bootstrapv1.ServerConfig) { s.FlannelIPv6Masq = ptr.To(true) },
	},
	{
		"flannelExternalIP",
		func(s *bootstrapv1.ServerConfig) { s.FlannelExternalIP = ptr.To(false) },
		func(s *bootstrapv1.ServerConfig) { s.FlannelExternalIP = ptr.To(true) },
	},
	{
		"egressSelectorMode",
		func(s *bootstrapv1.ServerConfig) { s.EgressSelectorMode = "agent" },
		func(s *bootstrapv1.ServerConfig) { s.EgressSelectorMode = "pod" },
	},
	{
		"secretsEncryption",
		func(s *bootstrapv1.ServerConfig) { s.SecretsEncryption = ptr.To(false) },
		func(s *bootstrapv1.ServerConfig) { s.SecretsEncryption = ptr.To(true) },
	},
	{
		"secretsEncryptionProvider",
		func(s *bootstrapv1.ServerConfig) { s.SecretsEncryptionProvider = "aescbc" },
		func(s *bootstrapv1.ServerConfig) { s.SecretsEncryptionProvider = "secretbox" },
	},
	{
		"embeddedRegistry",
		func(s *bootstrapv1.ServerConfig) { s.EmbeddedRegistry = ptr.To(false) },
		func(s *bootstrapv1.ServerConfig) { s.EmbeddedRegistry = ptr.To(true) },
	},
	{
		"supervisorMetrics",
		func(s *bootstrapv1.ServerConfig) { s.SupervisorMetrics = ptr.To(false) },
		func(s *bootstrapv1.ServerConfig) { s.SupervisorMetrics = ptr.To(true) },
	},
	{
		"disableCloudController",
		func(s *bootstrapv1.ServerConfig) { s.DisableCloudController = ptr.To(true) },
		func(s *bootstrapv1.ServerConfig) { s.DisableCloudController = ptr.To(false) },
	},
	{
		"disableNetworkPolicy",
		func(s *bootstrapv1.ServerConfig) { s.DisableNetworkPolicy = ptr.To(false) },
		func(s *bootstrapv1.ServerConfig) { s.DisableNetworkPolicy = ptr.To(true) },
	},
	{
		"disableHelmController",
		func(s *bootstrapv1.ServerConfig) { s.DisableHelmController = ptr.To(false) },
		func(s *bootstrapv1.ServerConfig) { s.DisableHelmController = ptr.To(true) },
	},
}

func criticalRefusal(field string) refusal {
	return refusal{"spec.kthreesConfigSpec.serverConfig." + field, field + " can't change"}
}

func TestControlPlane_KeepsItsCriticalSettings(t *testing.T) {
	absent := func(*bootstrapv1.ServerConfig) {}
	namespace := env.Namespace(t)
	for _, c := range criticalCases {
		refused := criticalRefusal(c.field)
		for _, change := range []struct {
			name     string
			from, to func(*bootstrapv1.ServerConfig)
			want     refusal
		}{
			{"absent to default", absent, c.usual, refusal{}},
			{"default to absent", c.usual, absent, refusal{}},
			{"absent to other", absent, c.others, refused},
			{"other to absent", c.others, absent, refused},
			{"default to other", c.usual, c.others, refused},
			{"other stays", c.others, c.others, refusal{}},
		} {
			t.Run(c.field+"/"+change.name, func(t *testing.T) {
				obj := controlPlane(namespace)
				change.from(&obj.Spec.KThreesConfigSpec.ServerConfig)
				require.NoError(t, env.Client.Create(context.Background(), obj))

				obj.Spec.KThreesConfigSpec.ServerConfig = bootstrapv1.ServerConfig{}
				change.to(&obj.Spec.KThreesConfigSpec.ServerConfig)
				obj.Labels = map[string]string{"changed": "true"}
				requireRefusal(t, change.want, env.Client.Update(context.Background(), obj))
			})
		}
	}
}

// The profile encrypts Secrets unless the spec says otherwise, so it can come to a cluster only together with a word
// on that.
func TestControlPlane_ProfileKeepsTheEncryption(t *testing.T) {
	namespace := env.Namespace(t)
	type spec struct {
		profile bootstrapv1.Profile
		encrypt *bool
	}
	for name, c := range map[string]struct {
		from, to spec
		want     refusal
	}{
		"profile comes":                      {spec{}, spec{profile: "cis"}, criticalRefusal("secretsEncryption")},
		"profile goes":                       {spec{profile: "cis"}, spec{}, criticalRefusal("secretsEncryption")},
		"profile comes without encryption":   {spec{}, spec{"cis", ptr.To(false)}, refusal{}},
		"profile comes to encryption":        {spec{encrypt: ptr.To(true)}, spec{profile: "cis"}, refusal{}},
		"encryption is said of a profile":    {spec{profile: "cis"}, spec{"cis", ptr.To(true)}, refusal{}},
		"encryption is denied of a profile":  {spec{profile: "cis"}, spec{"cis", ptr.To(false)}, criticalRefusal("secretsEncryption")},
		"profile goes and encryption stays":  {spec{profile: "cis"}, spec{encrypt: ptr.To(true)}, refusal{}},
		"something else changes in the spec": {spec{profile: "cis"}, spec{profile: "cis"}, refusal{}},
	} {
		t.Run(name, func(t *testing.T) {
			obj := controlPlane(namespace)
			config := &obj.Spec.KThreesConfigSpec
			config.Profile, config.ServerConfig.SecretsEncryption = c.from.profile, c.from.encrypt
			require.NoError(t, env.Client.Create(context.Background(), obj))
			config = &obj.Spec.KThreesConfigSpec
			config.Profile, config.ServerConfig.SecretsEncryption = c.to.profile, c.to.encrypt
			config.ServerConfig.TLSSan = []string{"changed"}
			requireRefusal(t, c.want, env.Client.Update(context.Background(), obj))
		})
	}
}

func TestControlPlane_OtherSettingsMayChange(t *testing.T) {
	obj := controlPlane(env.Namespace(t))
	require.NoError(t, env.Client.Create(context.Background(), obj))
	obj.Spec.KThreesConfigSpec.ServerConfig.TLSSan = []string{"api.example.org"}
	obj.Spec.KThreesConfigSpec.ServerConfig.DisableComponents = []string{"traefik"}
	obj.Spec.KThreesConfigSpec.ServerConfig.DisableKubeProxy = ptr.To(true)
	require.NoError(t, env.Client.Update(context.Background(), obj))
}

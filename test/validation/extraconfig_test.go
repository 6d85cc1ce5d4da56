package validation

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
	"github.com/capk3s/capk3s/pkg/k3s"
)

// extraConfigCases name, for servers and agents, one key of each sort.
var extraConfigCases = []struct {
	parent, key, value, message string
}{
	{"serverConfig", "token", `"x"`, "Secret CLUSTER-token"},
	{"serverConfig", "t", `"x"`, "Secret CLUSTER-token"},
	{"serverConfig", "token-file", `"/x"`, "Secret CLUSTER-token"},
	{"serverConfig", "agent-token", `"x"`, "key agent-token of the Secret CLUSTER-token"},
	{"serverConfig", "agent-token-file", `"/x"`, "key agent-token of the Secret CLUSTER-token"},
	{"serverConfig", "server", `"https://x:6443"`, "spec.controlPlaneEndpoint"},
	{"serverConfig", "cluster-init", `true`, "which machine founds the cluster"},
	{"serverConfig", "cluster-reset", `true`, "forget the others"},
	{"serverConfig", "cluster-reset-restore-path", `"/x"`, "forget the others"},
	{"serverConfig", "config", `"/x"`, "remove config: the operator decides it"},
	{"serverConfig", "disable-etcd", `true`, "remove disable-etcd"},
	{"serverConfig", "cluster-cidr", `["10.0.0.0/16"]`, "write serverConfig.clusterCidr instead of cluster-cidr"},
	{"serverConfig", "node-label", `["a=b"]`, "write agentConfig.nodeLabels instead of node-label"},
	{"serverConfig", "disable-apiserver-lb", `true`, "into agentConfig.extraConfig: a server doesn't know it"},

	{"agentConfig", "token", `"x"`, "Secret CLUSTER-token"},
	{"agentConfig", "server", `"https://x:6443"`, "spec.controlPlaneEndpoint"},
	{"agentConfig", "cluster-init", `true`, "which machine founds the cluster"},
	{"agentConfig", "node-taint", `["a=b:NoSchedule"]`, "write agentConfig.nodeTaints instead of node-taint"},
	{"agentConfig", "disable-etcd", `true`, "remove disable-etcd"},
	{"agentConfig", "tls-san", `["x"]`, "an agent doesn't start with it; for servers write serverConfig.tlsSan"},
	{"agentConfig", "write-kubeconfig-mode", `"0644"`, "for servers write serverConfig.writeKubeconfigMode"},
	{"agentConfig", "write-kubeconfig-group", `"0"`, "for servers write it into serverConfig.extraConfig"},
}

func TestExtraConfig_RefusedKeysSayWhatToWriteInstead(t *testing.T) {
	for _, k := range kinds {
		namespace := env.Namespace(t)
		for _, c := range extraConfigCases {
			t.Run(k.name+"/"+c.parent+"/"+c.key, func(t *testing.T) {
				ctx := context.Background()
				want := refusal{k.configPath + "." + c.parent + ".extraConfig." + c.key, c.message}
				obj := k.object(namespace)
				extra := bootstrapv1.ExtraConfig{c.key: apiextensionsv1.JSON{Raw: []byte(c.value)}}

				setExtra(k.config(obj), c.parent, extra)
				requireRefusal(t, want, env.Client.Create(ctx, obj))

				setExtra(k.config(obj), c.parent, nil)
				require.NoError(t, env.Client.Create(ctx, obj))
				setExtra(k.config(obj), c.parent, extra)
				requireRefusal(t, want, env.Client.Update(ctx, obj))
			})
		}
	}
}

// Every key is tried at once: the API server lists all that is wrong.
func TestExtraConfig_RefusesWhatHasAnotherPlace(t *testing.T) {
	for _, k := range kinds {
		namespace := env.Namespace(t)
		for _, parent := range []string{"serverConfig", "agentConfig"} {
			t.Run(k.name+"/"+parent, func(t *testing.T) {
				refused, kept := keysOf(parent)
				require.NotEmpty(t, refused)
				require.NotEmpty(t, kept)
				for len(refused) > 0 { // an extraConfig has at most 100 keys
					n := min(len(refused), 50)
					obj := k.object(namespace)
					setExtra(k.config(obj), parent, extraOf(refused[:n]))
					err := env.Client.Create(context.Background(), obj)
					for _, key := range refused[:n] {
						requireRefusal(t, refusal{k.configPath + "." + parent + ".extraConfig." + key.Name, key.Name}, err)
					}
					refused = refused[n:]
				}
				obj := k.object(namespace)
				setExtra(k.config(obj), parent, extraOf(kept))
				require.NoError(t, env.Client.Create(context.Background(), obj))
			})
		}
	}
}

func TestExtraConfig_KeepsOtherKeysAsTheyAre(t *testing.T) {
	extra := bootstrapv1.ExtraConfig{
		"pause-image":         apiextensionsv1.JSON{Raw: []byte(`"registry.example.org/pause:1"`)},
		"etcd-s3":             apiextensionsv1.JSON{Raw: []byte(`true`)},
		"etcd-s3-retention":   apiextensionsv1.JSON{Raw: []byte(`7`)},
		"node-ip":             apiextensionsv1.JSON{Raw: []byte(`["10.0.0.1","fd00::1"]`)},
		"setting-of-a-newer":  apiextensionsv1.JSON{Raw: []byte(`{"a":[1,{"b":"c"}]}`)},
		"datastore-endpoint":  apiextensionsv1.JSON{Raw: []byte(`"mysql://db"`)},
		"resolv-conf-or-what": apiextensionsv1.JSON{Raw: []byte(`""`)},
	}
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			obj := k.object(env.Namespace(t))
			setExtra(k.config(obj), "serverConfig", extra)
			require.NoError(t, env.Client.Create(context.Background(), obj))
			env.Refresh(t, obj)
			got := k.config(obj).ServerConfig.ExtraConfig
			require.Len(t, got, len(extra))
			for key, value := range extra {
				require.JSONEq(t, string(value.Raw), string(got[key].Raw), key)
			}
		})
	}
}

// keysOf returns the keys that must be refused in an extraConfig and those that must not.
func keysOf(parent string) (refused, kept []k3s.Key) {
	names := map[string]bool{}
	for _, key := range append(k3s.ServerKeys(), k3s.AgentKeys()...) {
		names[key.Name] = true
	}
	lookup, other := k3s.ServerKey, k3s.AgentKey
	if parent == "agentConfig" {
		lookup, other = other, lookup
	}
	for name := range names {
		if key, known := lookup(name); known && (key.Owner == "" || key.InExtra) {
			kept = append(kept, key)
		} else if known {
			refused = append(refused, key)
		} else {
			key, _ = other(name)
			refused = append(refused, key)
		}
	}
	return refused, kept
}

func setExtra(spec *bootstrapv1.KThreesConfigSpec, parent string, extra bootstrapv1.ExtraConfig) {
	if parent == "serverConfig" {
		spec.ServerConfig.ExtraConfig = extra
	} else {
		spec.AgentConfig.ExtraConfig = extra
	}
}

// extraOf returns an extraConfig with a value of the right type for each key.
func extraOf(keys []k3s.Key) bootstrapv1.ExtraConfig {
	values := map[k3s.Type]any{k3s.String: "x", k3s.List: []string{"x"}, k3s.Bool: true, k3s.Int: 1, k3s.Duration: "1m"}
	extra := bootstrapv1.ExtraConfig{}
	for _, key := range keys {
		raw, _ := json.Marshal(values[key.Type])
		extra[key.Name] = apiextensionsv1.JSON{Raw: raw}
	}
	return extra
}

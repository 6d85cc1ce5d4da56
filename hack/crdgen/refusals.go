package main

import (
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/utils/ptr"

	"github.com/capk3s/capk3s/pkg/k3s"
)

// Why the operator decides a setting itself; the others are explained by the lack of a choice.
var ownedBecause = map[string]string{
	"token":                      "the token is in the Secret CLUSTER-token, which you may create before the cluster",
	"token-file":                 "the token is in the Secret CLUSTER-token, which you may create before the cluster",
	"agent-token":                "the workers' token is the key agent-token of the Secret CLUSTER-token",
	"agent-token-file":           "the workers' token is the key agent-token of the Secret CLUSTER-token",
	"server":                     "machines join at the Cluster's spec.controlPlaneEndpoint",
	"cluster-init":               "the operator decides which machine founds the cluster",
	"cluster-reset":              "it would make a server forget the others",
	"cluster-reset-restore-path": "it would make a server forget the others",
	"supervisor-port":            "it is that of the kube-apiserver, serverConfig.httpsListenPort",
}

// refusals returns, by key, why a key may not be in the extraConfig of a serverConfig or agentConfig.
func refusals(parent string) map[string]refusal {
	known, others := k3s.ServerKeys(), k3s.AgentKeys()
	if parent == "agentConfig" {
		known, others = others, known
	}
	refused := map[string]refusal{}
	add := func(key k3s.Key, why string) {
		refused[key.Name] = refusal{schema: schemaOf(key.Type), message: why}
		if key.Short != "" {
			refused[key.Short] = refused[key.Name]
		}
	}
	for _, key := range others {
		add(key, elsewhere(key, parent))
	}
	for _, key := range known {
		switch {
		case key.OperatorOwned():
			add(key, fmt.Sprintf("remove %s: %s", key.Name, because(key)))
		case key.Owner != "" && !key.InExtra:
			add(key, fmt.Sprintf("write %s instead of %s", key.Owner, key.Name))
		default:
			delete(refused, key.Name)
			delete(refused, key.Short)
		}
	}
	return refused
}

// elsewhere says what to do with a setting that only the other one of server and agent knows.
func elsewhere(key k3s.Key, parent string) string {
	switch {
	case key.OperatorOwned():
		return fmt.Sprintf("remove %s: %s", key.Name, because(key))
	case parent == "serverConfig":
		return fmt.Sprintf("write %s into agentConfig.extraConfig: a server doesn't know it", key.Name)
	case key.Owner != "":
		return fmt.Sprintf("remove %s: an agent doesn't start with it; for servers write %s", key.Name, key.Owner)
	}
	return fmt.Sprintf("remove %s: an agent doesn't start with it; for servers write it into serverConfig.extraConfig", key.Name)
}

func because(key k3s.Key) string {
	if why, found := ownedBecause[key.Name]; found {
		return why
	}
	return "the operator decides it"
}

// visibleKeys are the keys of an extraConfig that rules elsewhere look at.
func visibleKeys(parent string) map[string]apiextensionsv1.JSONSchemaProps {
	if parent != "serverConfig" {
		return nil
	}
	return map[string]apiextensionsv1.JSONSchemaProps{"datastore-endpoint": schemaOf(k3s.String)}
}

// schemaOf returns the schema of a setting's value. The bounds only keep the rules' cost in check.
func schemaOf(kind k3s.Type) apiextensionsv1.JSONSchemaProps {
	text := apiextensionsv1.JSONSchemaProps{Type: "string", MaxLength: ptr.To[int64](4096)}
	switch kind {
	case k3s.Bool:
		return apiextensionsv1.JSONSchemaProps{Type: "boolean"}
	case k3s.Int:
		return apiextensionsv1.JSONSchemaProps{Type: "integer"}
	case k3s.List:
		return apiextensionsv1.JSONSchemaProps{
			Type:     "array",
			MaxItems: ptr.To[int64](256),
			Items:    &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &text},
		}
	default:
		return text
	}
}

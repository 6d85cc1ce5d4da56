package k3s

import (
	"slices"
	"sort"
	"strings"
)

// Type is the type of a setting's value in config.yaml.
type Type string

// Types of settings.
const (
	// String is a single string.
	String Type = "string"

	// List is a list of strings; K3s takes a single string for a list of one.
	List Type = "list"

	// Bool is true or false.
	Bool Type = "bool"

	// Int is a whole number.
	Int Type = "int"

	// Duration is a length of time as Go writes it, for example 5m.
	Duration Type = "duration"
)

// OwnerOperator is the owner of a setting that the operator alone decides.
const OwnerOperator = "operator"

// Key is a setting of K3s' config.yaml.
type Key struct {
	// Name of the setting, for example tls-san.
	Name string

	// Short is the one-letter form that K3s takes in place of the name; empty if there is none.
	Short string

	// Type of the value.
	Type Type

	// Server says whether a server knows the setting. A server skips what it doesn't know.
	Server bool

	// Agent says whether an agent knows the setting. An agent doesn't start with one that it doesn't know.
	Agent bool

	// Owner says who decides the value: [OwnerOperator]; the field of KThreesConfigSpec that holds it, for example
	// serverConfig.tlsSan; or nobody (empty), in which case it belongs into extraConfig.
	Owner string

	// InExtra says whether extraConfig may hold the setting although a field owns it, since that field came later. Where
	// both are set, neither is believed.
	InExtra bool

	// Critical settings are compared when a server joins: one that differs from the cluster's is refused.
	Critical bool
}

// OperatorOwned says whether the operator alone decides the setting.
func (k Key) OperatorOwned() bool {
	return k.Owner == OwnerOperator
}

// ServerKey returns the setting of that name, if a server knows it.
func ServerKey(name string) (Key, bool) {
	key, found := lookupKey(name)
	return key, found && key.Server
}

// AgentKey returns the setting of that name, if an agent knows it. A field of serverConfig doesn't own a setting of
// an agent, since it says nothing about workers.
func AgentKey(name string) (Key, bool) {
	key, found := lookupKey(name)
	return key.ofAgent(), found && key.Agent
}

// ServerKeys returns all settings of a server by name.
func ServerKeys() []Key {
	return slices.DeleteFunc(slices.Clone(keys), func(key Key) bool { return !key.Server })
}

// AgentKeys returns all settings of an agent by name, owned as [AgentKey] says.
func AgentKeys() []Key {
	var agentKeys []Key
	for _, key := range keys {
		if key.Agent {
			agentKeys = append(agentKeys, key.ofAgent())
		}
	}
	return agentKeys
}

func (k Key) ofAgent() Key {
	if strings.HasPrefix(k.Owner, "serverConfig.") {
		k.Owner = ""
	}
	return k
}

func lookupKey(name string) (Key, bool) {
	i := sort.Search(len(keys), func(i int) bool { return keys[i].Name >= name })
	if i == len(keys) || keys[i].Name != name {
		return Key{}, false
	}
	return keys[i], true
}

// longName returns the name that a one-letter form stands for.
func longName(short string) (string, bool) {
	i := slices.IndexFunc(keys, func(key Key) bool { return key.Short == short })
	if short == "" || i < 0 {
		return "", false
	}
	return keys[i].Name, true
}

package world

import (
	"context"
	"slices"
	"strings"
)

// ownOfNamespace is what every namespace has from the start.
var ownOfNamespace = []string{"serviceaccount/default", "configmap/kube-root-ca.crt"}

// Leftovers lists the objects in a namespace as kind/name, except for events
// and what every namespace has.
func (m *Management) Leftovers(ctx context.Context, namespace string) ([]string, error) {
	kinds, err := m.Kubectl(ctx, "api-resources", "--namespaced", "--verbs=list", "--output=name")
	if err != nil {
		return nil, err
	}
	stored := slices.DeleteFunc(strings.Fields(kinds), func(kind string) bool {
		return strings.HasPrefix(kind, "events") // of both groups
	})
	found, err := m.Kubectl(ctx, "get", strings.Join(stored, ","), "--namespace="+namespace, "--output=name", "--ignore-not-found")
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(strings.Fields(found), func(object string) bool {
		return slices.Contains(ownOfNamespace, object)
	}), nil
}

package node

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// allowedLabels are the labels of Kubernetes' own namespaces that a kubelet may
// set on its Node.
var allowedLabels = []string{
	"beta.kubernetes.io/arch",
	"beta.kubernetes.io/instance-type",
	"beta.kubernetes.io/os",
	"failure-domain.beta.kubernetes.io/region",
	"failure-domain.beta.kubernetes.io/zone",
	"kubernetes.io/arch",
	"kubernetes.io/hostname",
	"kubernetes.io/os",
	"node.kubernetes.io/instance-type",
	"topology.kubernetes.io/region",
	"topology.kubernetes.io/zone",
}

// allowedPrefixes are the sub-namespaces a kubelet may use.
var allowedPrefixes = []string{"kubelet.kubernetes.io", "node.kubernetes.io"}

// parseLabels reads `key=value` labels, and refuses those that the kubelet
// refuses.
func parseLabels(values []string) (map[string]string, error) {
	labels := map[string]string{}
	var unknown []string
	for _, item := range values {
		for _, pair := range strings.Split(item, ",") {
			if pair == "" {
				continue
			}
			key, value, _ := strings.Cut(pair, "=")
			labels[key] = value
			if !kubeletMaySet(key) {
				unknown = append(unknown, key)
			}
		}
	}
	if len(unknown) > 0 {
		slices.Sort(unknown)
		return nil, fmt.Errorf("unknown 'kubernetes.io' or 'k8s.io' labels specified with --node-labels: %v\n"+
			"--node-labels in the 'kubernetes.io' namespace must begin with an allowed prefix (%s) or be in the specifically allowed set (%s)",
			unknown, strings.Join(allowedPrefixes, ", "), strings.Join(allowedLabels, ", "))
	}
	return labels, nil
}

func kubeletMaySet(key string) bool {
	namespace, _, found := strings.Cut(key, "/")
	if !found || !(inNamespace(namespace, "kubernetes.io") || inNamespace(namespace, "k8s.io")) {
		return true
	}
	if slices.Contains(allowedLabels, key) {
		return true
	}
	return slices.ContainsFunc(allowedPrefixes, func(prefix string) bool { return inNamespace(namespace, prefix) })
}

func inNamespace(name, domain string) bool {
	return name == domain || strings.HasSuffix(name, "."+domain)
}

// parseTaints reads `key=value:effect` taints.
func parseTaints(values []string) ([]corev1.Taint, error) {
	var taints []corev1.Taint
	for _, item := range values {
		for _, text := range strings.Split(item, ",") {
			if text == "" {
				continue
			}
			pair, effect, found := strings.Cut(text, ":")
			key, value, _ := strings.Cut(pair, "=")
			switch corev1.TaintEffect(effect) {
			case corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute:
			default:
				found = false
			}
			if !found || key == "" {
				return nil, fmt.Errorf("invalid taint spec: %s", text)
			}
			taints = append(taints, corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)})
		}
	}
	return taints, nil
}

package controllers

import (
	"fmt"
	"strings"
	"text/template"

	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/validation"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
)

const (
	// defaultNameTemplate names Machines when spec.machineNaming says nothing.
	defaultNameTemplate = "{{ .kthreesControlPlane.name }}-{{ .random }}"

	// randomLength is the length of .random.
	randomLength = 5

	// maxNameLength is the longest host name and label value.
	maxNameLength = 63
)

// machineName makes a name for a new Machine. A name that is too long keeps its beginning and gets a random end.
func machineName(cluster *clusterv1.Cluster, controlPlane *controlplanev1.KThreesControlPlane) (string, error) {
	text := controlPlane.Spec.MachineNaming.Template
	if text == "" {
		text = defaultNameTemplate
	}
	tmpl, err := template.New("name").Option("missingkey=error").Parse(text)
	if err != nil {
		return "", fmt.Errorf("parsing spec.machineNaming.template: %w", err)
	}
	random := utilrand.String(randomLength)
	var name strings.Builder
	err = tmpl.Execute(&name, map[string]any{
		"cluster":             map[string]any{"name": cluster.Name},
		"kthreesControlPlane": map[string]any{"name": controlPlane.Name},
		"random":              random,
	})
	if err != nil {
		return "", fmt.Errorf("rendering spec.machineNaming.template: %w", err)
	}
	n := name.String()
	if len(n) > maxNameLength {
		n = n[:maxNameLength-randomLength] + random
	}
	if problems := validation.IsDNS1123Subdomain(n); len(problems) > 0 {
		return "", fmt.Errorf("spec.machineNaming.template makes %q: %s", n, strings.Join(problems, "; "))
	}
	return n, nil
}

package controllers

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
)

// fullToken is how a token in its full form begins.
var fullToken = regexp.MustCompile(`K10[0-9a-f]{64}::`)

// keepSecret refuses a token where everybody who may read Nodes, or the KThreesConfig, would see it. An error names the
// entry of a list.
func (in *inputs) keepSecret(spec *bootstrapv1.KThreesConfigSpec) error {
	single := func(value string) []string { return []string{value} }
	for _, shown := range []struct {
		field  string
		values []string
	}{
		{"agentConfig.nodeName", single(spec.AgentConfig.NodeName)},
		{"agentConfig.providerID", single(spec.AgentConfig.ProviderID)},
		{"agentConfig.nodeLabels[%d]", spec.AgentConfig.NodeLabels},
		{"agentConfig.nodeTaints[%d]", spec.AgentConfig.NodeTaints},
		{"agentConfig.kubeletArgs[%d]", spec.AgentConfig.KubeletArgs},
	} {
		if i := slices.IndexFunc(shown.values, in.holdsToken); i >= 0 {
			return fmt.Errorf("%s holds the cluster's token, or what looks like one: remove it, and change the token if others "+
				"have seen it", strings.Replace(shown.field, "%d", strconv.Itoa(i), 1))
		}
	}
	return nil
}

func (in *inputs) holdsToken(text string) bool {
	for _, token := range []string{in.token.Server, in.token.Agent} {
		if token != "" && strings.Contains(text, token) {
			return true
		}
	}
	return fullToken.MatchString(text)
}

// oneLine returns a value that has to be on one line; a newline at its end is what editors leave.
func oneLine(data []byte) (string, error) {
	text := bytes.TrimRight(data, "\r\n")
	switch {
	case len(text) == 0:
		return "", errors.New("is empty")
	case bytes.ContainsAny(text, "\r\n\x00"):
		return "", errors.New("must be a single line")
	}
	return string(text), nil
}

package controllers

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMachineName_FollowsTheTemplate(t *testing.T) {
	cases := []struct {
		name, template, prefix, err string
	}{
		{name: "default", prefix: "cp-"},
		{name: "cluster's name", template: "{{ .cluster.name }}-server-{{ .random }}", prefix: "c1-server-"},
		{name: "too long", template: strings.Repeat("x", 80) + "{{ .random }}", prefix: strings.Repeat("x", 58)},
		{name: "unknown variable", template: "{{ .machine }}-{{ .random }}", err: "spec.machineNaming.template"},
		{name: "no template", template: "{{ .random", err: "spec.machineNaming.template"},
		{name: "no host name", template: "UPPER-{{ .random }}", err: "spec.machineNaming.template"},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			s := newScope(0)
			s.controlPlane.Spec.MachineNaming.Template = tc.template
			first, err := machineName(s.cluster, s.controlPlane)
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err)
				return
			}
			require.NoError(t, err)
			second, err := machineName(s.cluster, s.controlPlane)
			require.NoError(t, err)
			assert.NotEqual(t, first, second)
			assert.True(t, strings.HasPrefix(first, tc.prefix), first)
			assert.LessOrEqual(t, len(first), 63)
		})
	}
}

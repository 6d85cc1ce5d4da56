package cloudconfig

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHasExpression(t *testing.T) {
	for text, want := range map[string]bool{
		"{{ ds.meta_data.hostname }}":                                        true,
		"a{{v1.region}}b":                                                    true,
		"{{ local_hostname }}":                                               true,
		"{{ ds['meta_data'][\"local-hostname\"] }}":                          true,
		"{{ ds.meta_data.keys[0] | lower }}":                                 true,
		"{{ v1.local_hostname.split('.')[0] }}":                              true,
		"{{ v1.instance_id[:8] }}":                                           true,
		"{{ ds.meta_data.zone | default('a b', true) | replace('a', 'b') }}": true,
		"{{{{ v1.region }}":                                                  true,

		"":                                   false,
		"{{range .items}}{{.Name}}{{end}}":   false,
		"{{ .Values.region }}":               false,
		"{{ hostname }}":                     false,
		"{{ v1.region":                       false,
		"{{ v1.region }":                     false,
		"{{ v1 + v1 }}":                      false,
		"{{ dsx.a }}":                        false,
		"{{ v1.region | default('it''s') }}": false,
		`{{ v1.region | default('\n') }}`:    false,
		"{{{ v1.region }}}":                  false,
		"{{- v1.region -}}":                  false,
		"{% if v1.region %}":                 false,
		"{# v1.region #}":                    false,
		"${#a[@]} ${v1.region}":              false,
	} {
		require.Equal(t, want, HasExpression(text), text)
	}
}

func TestTemplate(t *testing.T) {
	require.Equal(t, "a {{ (v1.region|string|tojson)[1:-1] }} b", template("a {{v1.region}} b", 1))
	require.Equal(t, "{{ ((ds['x'] | default('y')|string|tojson)[1:-1]|tojson)[1:-1] }}", template(`{{ ds["x"] | default("y") }}`, 2))
	require.Equal(t, "{{ '{{' }}range .i}}{{ '{#' }}{{ '{%' }}", template("{{range .i}}{#{%", 1))
	require.Equal(t, "{{ '{{' }}{ v1.region }}}", template("{{{ v1.region }}}", 1))
}

func TestForgiving(t *testing.T) {
	for path, want := range map[string]string{
		"v1.region":                            "v1.region",
		"region|upper":                         "region|upper",
		"ds.meta_data.hostname":                "(ds.meta_data|default({})).hostname",
		"ds['a']['b-c'][0]|default('x', true)": "((ds['a']|default({}))['b-c']|default({}))[0]|default('x', true)",
		"v1.local_hostname.split('.')[0]":      "((v1.local_hostname|default('CI_MISSING_JINJA_VAR/local_hostname')).split('.')|default({}))[0]",
		"distro_release[0]":                    "(distro_release|default({}))[0]",
		"region.upper()":                       "(region|default('CI_MISSING_JINJA_VAR/region')).upper()",
		"v1.instance_id[:8]":                   "(v1.instance_id|default(['CI_MISSING_JINJA_VAR/instance_id']))[:8]",
	} {
		require.Equal(t, want, forgiving(path), path)
	}
}

func TestEscape(t *testing.T) {
	require.Equal(t, "{{ '{{' }} v1.region }} {{ '{%' }}", escape("{{ v1.region }} {%"))
}

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

func TestEscape(t *testing.T) {
	require.Equal(t, "{{ '{{' }} v1.region }} {{ '{%' }}", escape("{{ v1.region }} {%"))
}

package guest

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCurl_RefusesUnknownAddresses(t *testing.T) {
	for name, tc := range map[string]struct {
		args   []string
		code   int
		stderr string
	}{
		"fails with -f":           {args: []string{"-fL", "https://example.com/x"}, code: 22, stderr: "curl: (22) The requested URL returned error: 404\n"},
		"silent":                  {args: []string{"-sf", "https://example.com"}, code: 22},
		"silent but shows errors": {args: []string{"-sfS", "https://example.com"}, code: 22, stderr: "curl: (22) The requested URL returned error: 404\n"},
		"without -f":              {args: []string{"-s", "https://example.com"}},
		"option values are not addresses": {
			args: []string{"--retry", "5", "-fsSo", "/dev/null", "https://get.k3s.io/other"}, code: 22,
			stderr: "curl: (22) The requested URL returned error: 404\n",
		},
		"no address": {args: []string{"-s"}, code: 2, stderr: "curl: no URL specified!\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			require.Equal(t, tc.code, Curl(tc.args, &stdout, &stderr))
			require.Equal(t, tc.stderr, stderr.String())
		})
	}
}

func TestParseCurl_TakesValuesOfOptionsForWhatTheyAre(t *testing.T) {
	target, output, fail, silent := parseCurl([]string{"-fsSL", "https://get.k3s.io", "--retry", "5", "-H", "A: b", "-o", "file"})
	require.Equal(t, "https://get.k3s.io", target)
	require.Equal(t, "file", output)
	require.True(t, fail)
	require.False(t, silent, "-S shows errors")
}

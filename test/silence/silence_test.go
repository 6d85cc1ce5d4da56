package silence

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

const (
	secretToken = "0f1e2d3c4b5a69788796a5b4c3d2e1f0"
	shortToken  = "sw0rdfish:1"
	hashOfCA    = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	privateKey  = "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEIA==\n-----END EC PRIVATE KEY-----\n"
)

func tokenSecret(name string, data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: "c1"}},
		Data:       data,
	}
}

func TestGuard_FindsWhatMayNotBeSaid(t *testing.T) {
	g := New()
	g.Learn(tokenSecret("c1-token", map[string][]byte{"value": []byte(secretToken), "agent-token": []byte("K10" + hashOfCA + "::node:an-agents-token-1")}))
	g.Learn(tokenSecret("c1-ca", map[string][]byte{"tls.crt": []byte("this is not a secret")}))
	g.LearnToken("ns/c2-token", shortToken)
	g.LearnToken("ns/c2-token", "")
	require.Equal(t, 3, g.Tokens())

	encoded := base64.StdEncoding.EncodeToString
	for name, tc := range map[string]struct{ text, want string }{
		"nothing":              {"a CA is in Secret c1-ca: this is not a secret", ""},
		"a token":              {"joining with " + secretToken, `the token of ns/c1-token after "joining with "`},
		"its beginning":        {secretToken[:20] + "...", "the token of ns/c1-token"},
		"its full form":        {"K10" + hashOfCA + "::server:" + secretToken, "the token of ns/c1-token"},
		"the workers' token":   {"node:an-agents-token-1", "the token of ns/c1-token"},
		"the hash of a CA":     {"K10" + hashOfCA + "::node:", ""},
		"in base64":            {encoded([]byte(secretToken)), "the token of ns/c1-token in base64"},
		"in base64, later":     {encoded([]byte("t" + secretToken)), "the token of ns/c1-token in base64"},
		"in base64, and later": {encoded([]byte("to" + secretToken)), "the token of ns/c1-token in base64"},
		"a short token":        {"it is " + shortToken, `the token of ns/c2-token after "it is "`},
		"short, in base64":     {encoded([]byte("x" + shortToken + "y")), "the token of ns/c2-token in base64"},
		"the first of two":     {"a " + shortToken + " b " + secretToken, `the token of ns/c2-token after "a "`},
		"a key":                {privateKey, "a private key"},
		"a key in JSON":        {`{"tls.key":"` + encoded([]byte(privateKey)) + `"}`, "a private key in base64"},
		"the certificate":      {"-----BEGIN CERTIFICATE-----", ""},
	} {
		t.Run(name, func(t *testing.T) {
			found := g.Find(tc.text)
			require.Contains(t, found, tc.want)
			if tc.want == "" {
				require.Empty(t, found)
			}
			require.NotContains(t, found, secretToken)
		})
	}
}

func TestGuard_SearchesObjectsAndLogs(t *testing.T) {
	logs := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(logs, "machines"), 0o755))
	for path, text := range map[string]string{"operator.log": "nothing\n", "machines/console.log": "TOKEN=" + secretToken} {
		require.NoError(t, os.WriteFile(filepath.Join(logs, path), []byte(text), 0o600))
	}
	g := New()
	// The token is known later than it is said.
	g.Hear("Machine ns/m1", map[string]any{"status": map[string]any{"conditions": []any{map[string]any{"message": "it is " + secretToken}}}})
	g.Hear("Event ns/e1", map[string]any{"note": "nothing worth to be said"})
	g.Learn(tokenSecret("c1-token", map[string][]byte{"value": []byte(secretToken)}))

	report, err := g.Search(logs)
	require.NoError(t, err)
	require.Equal(t, 2, report.Texts)
	require.Equal(t, 2, report.Files)
	require.Len(t, report.Found, 2)
	require.Contains(t, report.Found[0], "machines/console.log says the token of ns/c1-token")
	require.Contains(t, report.Found[1], `Machine ns/m1 says the token of ns/c1-token after "it is "`)

	_, err = g.Search(filepath.Join(logs, "absent"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

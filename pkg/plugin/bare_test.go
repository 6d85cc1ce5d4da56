package plugin_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// bareKubeconfig leads to an API server that knows no custom resource.
func bareKubeconfig(t *testing.T) []byte {
	t.Helper()
	answers := map[string]string{
		"/api":  `{"kind":"APIVersions","versions":["v1"]}`,
		"/apis": `{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`,
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		answer, ok := answers[r.URL.Path]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			answer = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`
		}
		_, err := w.Write([]byte(answer))
		assert.NoError(t, err)
	}))
	t.Cleanup(server.Close)
	config := clientcmdapi.NewConfig()
	config.Clusters["bare"] = &clientcmdapi.Cluster{Server: server.URL}
	config.Contexts["bare"] = &clientcmdapi.Context{Cluster: "bare"}
	config.CurrentContext = "bare"
	content, err := clientcmd.Write(*config)
	require.NoError(t, err)
	return content
}

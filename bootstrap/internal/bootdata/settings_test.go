package bootdata

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capk3s/capk3s/pkg/k3s"
)

func TestPlan_RegistriesFile(t *testing.T) {
	const content = `# ours
mirrors:
  "*": {endpoint: [https://mirror.example.com], rewrite: {"^(.*)$": "proxy/$1"}}
configs:
  mirror.example.com: {auth: {username: u, password: p}, tls: {ca_file: /etc/ssl/m.pem, insecure_skip_verify: false}}
`
	file, err := registriesFile(k3s.Config{}, []byte(content))
	require.NoError(t, err)
	require.Equal(t, File{Path: "/etc/rancher/k3s/registries.yaml", Permissions: "0600", Content: []byte(content)}, file)

	file, err = registriesFile(k3s.Config{"private-registry": "/etc/r.yaml"}, []byte("# nothing\n"))
	require.NoError(t, err)
	require.Equal(t, "/etc/r.yaml", file.Path)
}

// The file is written where K3s looks for it, or not at all.
func TestPlan_RegistriesFile_NeedsAPlaceOfItsOwn(t *testing.T) {
	for _, at := range []string{"registries.yaml", "/etc/a b.yaml", "{{ v1.region }}", "/etc/", ConfigPath} {
		_, err := registriesFile(k3s.Config{"private-registry": at}, []byte("mirrors: {}"))
		require.ErrorContains(t, err, "agentConfig.privateRegistry must be an absolute path", at)
	}
}

func TestPlan_RegistriesFile_RefusesWhatK3sWouldSkip(t *testing.T) {
	for name, tt := range map[string]struct{ content, want string }{
		"not YAML":      {"mirrors:\n  a: [hunter2\n", "line"},
		"typo":          {"mirrors:\n  a:\n    endpoints: [hunter2]\n", "line 3 isn't what K3s expects"},
		"another form":  {"mirrors:\n  a: hunter2\n", "line 2 isn't what K3s expects"},
		"another level": {"mirror.example.com:\n  auth: {password: hunter2}\n", "line 1 isn't what K3s expects"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := registriesFile(k3s.Config{}, []byte(tt.content))
			require.ErrorContains(t, err, tt.want)
			require.NotContains(t, err.Error(), "hunter2")
		})
	}
}

func TestKubeletFile(t *testing.T) {
	file, err := kubeletFile(k3s.Config{}, []byte(`{"maxPods":200,"evictionHard":{"memory.available":"5%"}}`))
	require.NoError(t, err)
	require.Equal(t, "/var/lib/rancher/k3s/agent/etc/kubelet.conf.d/50-kubelet-configuration.conf", file.Path)
	require.JSONEq(t, `{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"KubeletConfiguration","maxPods":200,
		"evictionHard":{"memory.available":"5%"}}`, string(file.Content))

	file, err = kubeletFile(k3s.Config{"data-dir": "/data"}, []byte(`{"kind":"KubeletConfiguration"}`))
	require.NoError(t, err)
	require.Equal(t, "/data/agent/etc/kubelet.conf.d/50-kubelet-configuration.conf", file.Path)

	for raw, want := range map[string]string{
		`null`:                " must be an object",
		`{"kind":"Kubelet"}`:  ".kind must be KubeletConfiguration, or left out",
		`{"apiVersion":"v1"}`: ".apiVersion must be kubelet.config.k8s.io/v1beta1, or left out",
		`[]`:                  " must be an object",
	} {
		_, err := kubeletFile(k3s.Config{}, []byte(raw))
		require.ErrorContains(t, err, "agentConfig.kubeletConfiguration"+want)
	}
}

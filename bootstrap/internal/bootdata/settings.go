package bootdata

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"

	"go.yaml.in/yaml/v3"

	"github.com/capk3s/capk3s/pkg/k3s"
)

const (
	// registriesPath is where K3s looks for its registries file by default.
	registriesPath = "/etc/rancher/k3s/registries.yaml"

	kubeletAPIVersion = "kubelet.config.k8s.io/v1beta1"
	kubeletKind       = "KubeletConfiguration"
)

// registries is the form of K3s' registries file. K3s skips what it doesn't know, so that a typo is found when the
// first image can't be pulled.
type registries struct {
	Mirrors map[string]struct {
		Endpoint []string          `yaml:"endpoint"`
		Rewrite  map[string]string `yaml:"rewrite"`
	} `yaml:"mirrors"`
	Configs map[string]struct {
		Auth struct {
			Username      string `yaml:"username"`
			Password      string `yaml:"password"`
			Auth          string `yaml:"auth"`
			IdentityToken string `yaml:"identity_token"`
		} `yaml:"auth"`
		TLS struct {
			CAFile             string `yaml:"ca_file"`
			CertFile           string `yaml:"cert_file"`
			KeyFile            string `yaml:"key_file"`
			InsecureSkipVerify bool   `yaml:"insecure_skip_verify"`
		} `yaml:"tls"`
	} `yaml:"configs"`
}

var lineNumber = regexp.MustCompile(`line [0-9]+`)

// registriesFile returns the registries file where the settings want it. An error names the line and doesn't quote it,
// since it may hold a password.
func registriesFile(config k3s.Config, content []byte) (File, error) {
	if err := decodeStrictly(content, &registries{}); err != nil {
		where := lineNumber.FindString(err.Error())
		if where == "" {
			where = "the file"
		}
		return File{}, fmt.Errorf("agentConfig.registries: %s isn't what K3s expects of a registries file: mirrors with endpoint and rewrite, configs with "+
			"auth (username, password, auth, identity_token) and tls (ca_file, cert_file, key_file, insecure_skip_verify)", where)
	}
	at := registriesPath
	if set := config.Strings("private-registry"); len(set) > 0 {
		at = set[0]
	}
	if !plainPath.MatchString(at) || at == ConfigPath {
		return File{}, errors.New("agentConfig.privateRegistry must be an absolute path of letters, digits, dots, dashes and " +
			"underscores that is no other file's, since agentConfig.registries is written there")
	}
	return SecretFile(at, content), nil
}

// kubeletFile returns a file of the kubelet's drop-in folder with fields of a KubeletConfiguration, given as JSON.
func kubeletFile(config k3s.Config, raw []byte) (File, error) {
	const field = "agentConfig.kubeletConfiguration"
	fields := map[string]any{}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	if err := decoder.Decode(&fields); err != nil || fields == nil {
		return File{}, errors.New(field + " must be an object with fields of a KubeletConfiguration")
	}
	for _, own := range []struct{ name, value string }{{"apiVersion", kubeletAPIVersion}, {"kind", kubeletKind}} {
		if given, set := fields[own.name]; set && given != own.value {
			return File{}, fmt.Errorf("%s.%s must be %s, or left out", field, own.name, own.value)
		}
		fields[own.name] = own.value
	}
	content, err := json.MarshalIndent(fields, "", "  ")
	if err != nil {
		return File{}, fmt.Errorf("encoding %s: %w", field, err)
	}
	return File{
		Path:    path.Join(config.DataDir(), "agent/etc/kubelet.conf.d/50-kubelet-configuration.conf"),
		Content: append(content, '\n'),
	}, nil
}

func decodeStrictly(content []byte, into any) error {
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	decoder.KnownFields(true)
	err := decoder.Decode(into)
	if errors.Is(err, io.EOF) { // nothing but comments
		return nil
	}
	return err
}

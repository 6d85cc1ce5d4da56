package custody

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"io"
	"log"
	"strings"

	"sigs.k8s.io/yaml"
)

var discardLog = log.New(io.Discard, "", 0)

// bootData is what a machine learns from its bootstrap data.
type bootData struct {
	init       bool
	token      string
	agentToken string
	// files are those below server/tls.
	files map[string][]byte
}

func parseBootstrapData(data []byte) (*bootData, error) {
	var cloudConfig struct {
		WriteFiles []struct{ Path, Encoding, Content string } `json:"write_files"`
	}
	if err := yaml.Unmarshal(data, &cloudConfig); err != nil {
		return nil, fmt.Errorf("reading cloud-config: %w", err)
	}
	boot := &bootData{files: map[string][]byte{}}
	for _, file := range cloudConfig.WriteFiles {
		content, err := decode(file.Encoding, file.Content)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", file.Path, err)
		}
		if _, path, found := strings.Cut(file.Path, "/server/tls/"); found {
			boot.files[path] = content
		}
		if file.Path != "/etc/rancher/k3s/config.yaml" {
			continue
		}
		var config struct {
			Init       bool   `json:"cluster-init"`
			Token      string `json:"token"`
			AgentToken string `json:"agent-token"`
		}
		if err := yaml.Unmarshal(content, &config); err != nil {
			return nil, fmt.Errorf("reading %s: %w", file.Path, err)
		}
		boot.init, boot.token, boot.agentToken = config.Init, config.Token, config.AgentToken
	}
	return boot, nil
}

func decode(encoding, content string) ([]byte, error) {
	if encoding == "" {
		return []byte(content), nil
	}
	decoded, err := base64.StdEncoding.DecodeString(content)
	if err != nil || encoding != "gz+b64" {
		return decoded, err
	}
	reader, err := gzip.NewReader(bytes.NewReader(decoded))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(reader)
}

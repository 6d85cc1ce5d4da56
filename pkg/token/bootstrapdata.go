package token

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/csv"
	"errors"
	"fmt"
	"io"

	"sigs.k8s.io/yaml"

	"github.com/capk3s/capk3s/pkg/k3s"
)

const (
	configPath = "/etc/rancher/k3s/config.yaml"

	// unpackedLimit in bytes is far above what any user data may have.
	unpackedLimit = 8 << 20
)

var errNoToken = errors.New("it holds no K3s token")

// FromBootstrapData returns the token in a machine's bootstrap data: cloud-config, plain or gzipped, that writes
// K3s' config.yaml. Only a server's data give a token with Server set; a worker's give its agent token. The errors
// never quote the data.
func FromBootstrapData(data []byte) (*Token, error) {
	content, err := configFile(data)
	if err != nil {
		return nil, fmt.Errorf("reading the bootstrap data: %w", err)
	}
	token, err := fromConfig(content)
	if err != nil {
		return nil, fmt.Errorf("reading %s of the bootstrap data: %w", configPath, err)
	}
	return token, nil
}

// writeFile is an entry of cloud-config's write_files.
type writeFile struct {
	Path     string `json:"path"`
	Encoding string `json:"encoding"`
	Content  string `json:"content"`
}

func configFile(data []byte) ([]byte, error) {
	if bytes.HasPrefix(data, []byte{0x1f, 0x8b}) {
		unpacked, err := gunzip(data)
		if err != nil {
			return nil, err
		}
		data = unpacked
	}
	var cloudConfig struct {
		WriteFiles []writeFile `json:"write_files"`
	}
	if err := yaml.Unmarshal(data, &cloudConfig); err != nil {
		return nil, errors.New("it is no YAML that cloud-init would understand") // The parser's error quotes the data.
	}
	for _, file := range cloudConfig.WriteFiles {
		if file.Path == configPath {
			return file.decode()
		}
	}
	return nil, errNoToken
}

// decode undoes the encodings by all the names that cloud-init has for them.
func (f writeFile) decode() ([]byte, error) {
	content := []byte(f.Content)
	switch f.Encoding {
	case "", "text/plain":
		return content, nil
	case "b64", "base64":
		return unbase64(content)
	case "gz", "gzip":
		return gunzip(content)
	case "gz+b64", "gz+base64", "gzip+b64", "gzip+base64":
		packed, err := unbase64(content)
		if err != nil {
			return nil, err
		}
		return gunzip(packed)
	}
	return nil, fmt.Errorf("unknown encoding %q", f.Encoding)
}

func unbase64(content []byte) ([]byte, error) {
	decoded, err := base64.StdEncoding.DecodeString(string(bytes.TrimSpace(content)))
	if err != nil {
		return nil, errors.New("its base64 is broken")
	}
	return decoded, nil
}

func gunzip(content []byte) ([]byte, error) {
	reader, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		return nil, fmt.Errorf("unpacking: %w", err)
	}
	unpacked, err := io.ReadAll(io.LimitReader(reader, unpackedLimit))
	if err != nil {
		return nil, fmt.Errorf("unpacking: %w", err)
	}
	return unpacked, nil
}

func fromConfig(content []byte) (*Token, error) {
	var config struct {
		Token      string `json:"token"`
		AgentToken string `json:"agent-token"`
	}
	if err := yaml.Unmarshal(content, &config); err != nil {
		return nil, errors.New("it is no YAML, or its token is no string")
	}
	if config.Token == "" {
		return nil, errNoToken
	}
	_, user, password, err := k3s.ParseToken(config.Token)
	if err != nil {
		return nil, err
	}
	if user == k3s.NodeUser {
		return &Token{Agent: password}, nil
	}
	return &Token{Server: password, Agent: config.AgentToken}, nil
}

// FromPasswdFile returns the token in the password file of a K3s server, which the supervisor gives to other servers
// as PasswdFile. Agent is empty when agents use the server token. The errors never quote the file.
func FromPasswdFile(content []byte) (*Token, error) {
	reader := csv.NewReader(bytes.NewReader(content))
	reader.FieldsPerRecord = -1
	records, err := reader.ReadAll()
	if err != nil {
		return nil, errors.New("reading K3s' password file: it is no list of comma-separated values")
	}
	token := &Token{}
	for _, record := range records {
		if len(record) < 2 {
			continue
		}
		switch password, user := record[0], record[1]; user {
		case k3s.ServerUser:
			token.Server = password
		case k3s.NodeUser:
			token.Agent = password
		}
	}
	if token.Server == "" {
		return nil, errors.New("reading K3s' password file: it has no user " + k3s.ServerUser)
	}
	if token.Agent == token.Server {
		token.Agent = ""
	}
	return token, nil
}

package server

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/capk3s/capk3s/test/k3s/internal/config"
	"github.com/capk3s/capk3s/test/k3s/internal/pki"
)

// generateFiles makes every file that a server needs and doesn't have.
func (s *server) generateFiles() error {
	control := &s.cfg.Server.Control
	if err := pki.EnsureCAs(s.files); err != nil {
		return err
	}
	names := pki.Names{Supervisor: control.SANs, Node: []string{control.ServerNodeName, s.cfg.NodeName}}
	for _, ip := range s.cfg.NodeIPs {
		names.Node = append(names.Node, ip.String())
	}
	// What is in the supervisor's certificate is good for kube-apiserver's too.
	names.Service = control.SANs
	if err := pki.EnsureLeaves(s.files, names); err != nil {
		return err
	}
	passwords, err := s.preparePasswords()
	if err != nil {
		return err
	}
	s.passwords = passwords
	if control.IPSECPSK, err = s.ipsecKey(); err != nil {
		return err
	}
	if control.EncryptSecrets {
		return s.encryptionConfig()
	}
	return nil
}

func (s *server) ipsecKey() (string, error) {
	raw, err := os.ReadFile(s.files.IPSECKey)
	if err == nil {
		return strings.TrimSpace(string(raw)), nil
	}
	if !os.IsNotExist(err) {
		return "", err
	}
	key := config.RandomHex(48)
	return key, os.WriteFile(s.files.IPSECKey, []byte(key+"\n"), 0o600)
}

// encryptionConfig writes kube-apiserver's encryption configuration, with a new
// key if the cluster has none.
func (s *server) encryptionConfig() error {
	if _, err := os.Stat(s.files.EncryptionConfig); !os.IsNotExist(err) {
		return err
	}
	key := make([]byte, 32)
	_, _ = rand.Read(key)
	provider := s.cfg.Server.Control.EncryptProvider
	keys := map[string]any{"keys": []any{map[string]any{"name": provider + "key", "secret": base64.StdEncoding.EncodeToString(key)}}}
	content, err := json.Marshal(map[string]any{
		"kind": "EncryptionConfiguration", "apiVersion": "apiserver.config.k8s.io/v1",
		"resources": []any{map[string]any{
			"resources": []string{"secrets"},
			"providers": []any{map[string]any{provider: keys}, map[string]any{"identity": map[string]any{}}},
		}},
	})
	if err != nil {
		return err
	}
	return os.WriteFile(s.files.EncryptionConfig, content, 0o600)
}

// writeKubeconfig writes the administrator's kubeconfig.
func (s *server) writeKubeconfig() error {
	certFile, keyFile := s.files.Leaf("client-admin")
	var content [3][]byte
	for i, file := range []string{s.files.ServerCA, certFile, keyFile} {
		raw, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		content[i] = raw
	}
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters["default"] = &clientcmdapi.Cluster{
		Server:                   fmt.Sprintf("https://127.0.0.1:%d", s.cfg.Server.Control.HTTPSPort),
		CertificateAuthorityData: content[0],
	}
	kubeconfig.AuthInfos["default"] = &clientcmdapi.AuthInfo{ClientCertificateData: content[1], ClientKeyData: content[2]}
	kubeconfig.Contexts["default"] = &clientcmdapi.Context{Cluster: "default", AuthInfo: "default"}
	kubeconfig.CurrentContext = "default"
	raw, err := clientcmd.Write(*kubeconfig)
	if err != nil {
		return err
	}
	path := s.cfg.Server.KubeconfigPath
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, raw, s.cfg.Server.KubeconfigMode)
}

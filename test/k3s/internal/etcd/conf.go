package etcd

import (
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.uber.org/zap"
	"go.yaml.in/yaml/v2"
)

// writeConfig writes etcd's configuration file, as K3s does, and returns its
// path.
func (s *Server) writeConfig(cluster, state string) (string, error) {
	server, serverKey := s.opts.Files.Leaf("etcd/server-client")
	peer, peerKey := s.opts.Files.Leaf("etcd/peer-server-client")
	metrics := "http://127.0.0.1:2381"
	if s.opts.ExposeMetrics {
		metrics += ",http://" + s.address + ":2381"
	}
	conf := map[string]any{
		"name":                        s.name,
		"data-dir":                    s.dir,
		"listen-client-urls":          s.listen("2379"),
		"listen-client-http-urls":     "https://127.0.0.1:2382",
		"listen-peer-urls":            s.listen("2380"),
		"listen-metrics-urls":         metrics,
		"advertise-client-urls":       s.clientURL(),
		"initial-advertise-peer-urls": s.peerURL(),
		"client-transport-security": map[string]any{
			"cert-file": server, "key-file": serverKey, "client-cert-auth": true, "trusted-ca-file": s.opts.Files.ETCDServerCA,
		},
		"peer-transport-security": map[string]any{
			"cert-file": peer, "key-file": peerKey, "client-cert-auth": true, "trusted-ca-file": s.opts.Files.ETCDPeerCA,
		},
		"snapshot-count":                 10000,
		"heartbeat-interval":             500,
		"election-timeout":               5000,
		"feature-gates":                  "InitialCorruptCheck=true",
		"watch-progress-notify-interval": int64(5 * time.Second), // nanoseconds
		"logger":                         "zap",
		// What is wrong with etcd shows in what its clients say.
		"log-level":   "dpanic",
		"log-outputs": []string{"stderr"},
	}
	if cluster != "" {
		conf["initial-cluster"] = cluster
		conf["initial-cluster-state"] = state
	}
	if err := addExtraArgs(conf, s.opts.ExtraArgs); err != nil {
		return "", err
	}
	content, err := yaml.Marshal(conf)
	if err != nil {
		return "", err
	}
	path := filepath.Join(s.dir, "config")
	return path, os.WriteFile(path, content, 0o600)
}

// listen are the URLs for a port: on the loopback, and on the member's address.
func (s *Server) listen(port string) string {
	loopback := "https://127.0.0.1:" + port
	if s.address == "127.0.0.1" {
		return loopback
	}
	return loopback + ",https://" + s.address + ":" + port
}

// addExtraArgs adds `key=value` pairs; a value has the type that YAML gives it.
func addExtraArgs(conf map[string]any, args []string) error {
	for _, arg := range args {
		key, raw, _ := strings.Cut(arg, "=")
		var value any
		if err := yaml.Unmarshal([]byte(raw), &value); err != nil {
			return err
		}
		conf[strings.TrimLeft(key, "-")] = value
	}
	return nil
}

// quietLogger keeps the client's own retries out of the log: they are expected
// while etcd starts.
func quietLogger() *zap.Logger { return zap.NewNop() }

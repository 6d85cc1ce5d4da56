// Package config reads the configuration of `k3s server` and `k3s agent` with
// K3s' flags, files, environment variables and precedence.
package config

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// The sub-commands that read this configuration.
const (
	CommandServer = "server"
	CommandAgent  = "agent"
	// CommandNode is the node half alone, beside a real K3s server that runs
	// with --disable-agent. It takes the server's flags.
	CommandNode = "node"
)

// tokenFileWait is how long K3s waits for a token file to appear.
const tokenFileWait = 4 * time.Minute

// Config is what one `k3s server` or `k3s agent` was told.
type Config struct {
	// Command is the sub-command.
	Command string
	// Args are the sub-command and all arguments, config.yaml's first.
	Args []string
	// DataDir is K3s' root, /var/lib/rancher/k3s by default.
	DataDir string
	// Token joins or founds the cluster; empty if none was given.
	Token string
	// AgentToken is the token for agents; empty if they use Token.
	AgentToken string
	// JoinURL is the server to join, as configured.
	JoinURL string
	// NodeName names the Node; lower case, with the node id if asked for.
	NodeName string
	// NodeIPs are the addresses of this machine, at least one.
	NodeIPs []net.IP
	// NodeExternalIPs are the addresses given with node-external-ip.
	NodeExternalIPs []net.IP
	// NodeLabels, NodeTaints and KubeletArgs are as configured.
	NodeLabels, NodeTaints, KubeletArgs []string
	// LBPort is the agent's local port towards the servers.
	LBPort int
	// Debug turns on debug logs.
	Debug bool

	// Server holds what only servers have; nil for agents.
	Server *Server
}

// Server is the part of the configuration that only servers have.
type Server struct {
	// Control is what the server tells others about itself.
	Control Control
	// ClusterReset is kept so that it can be refused.
	ClusterReset bool
	// DatastoreEndpoint names a datastore outside of the server; empty for its
	// own. The files are for the connection to it, and may be empty.
	DatastoreEndpoint                                    string
	DatastoreCAFile, DatastoreCertFile, DatastoreKeyFile string
	// APIServerArgs and EtcdArgs are `key=value` pairs.
	APIServerArgs, EtcdArgs []string
	// ExposeEtcdMetrics serves etcd's metrics on the node's address too.
	ExposeEtcdMetrics bool
	// KubeconfigPath is where the admin kubeconfig is written.
	KubeconfigPath string
	// KubeconfigMode is the mode of that file.
	KubeconfigMode os.FileMode
}

// Load reads the configuration of a sub-command from its arguments, from
// config.yaml and from the environment.
func Load(command string, args []string) (*Config, error) {
	parsed, err := parseFlags(command, args)
	if err != nil {
		return nil, err
	}
	cfg := &Config{
		Command:     command,
		Args:        append([]string{command}, parsed.args...),
		DataDir:     parsed.str("data-dir"),
		JoinURL:     parsed.str("server"),
		NodeLabels:  parsed.list("node-label"),
		NodeTaints:  parsed.list("node-taint"),
		KubeletArgs: parsed.list("kubelet-arg"),
		LBPort:      parsed.int("lb-server-port", 6444),
		Debug:       parsed.bool("debug"),
	}
	if cfg.Token, err = tokenValue(parsed, "token"); err != nil {
		return nil, err
	}
	if err := cfg.setAddresses(parsed); err != nil {
		return nil, err
	}
	baseName, err := cfg.setNodeName(parsed)
	if err != nil {
		return nil, err
	}
	if command == CommandAgent {
		return cfg, nil
	}
	if cfg.AgentToken, err = tokenValue(parsed, "agent-token"); err != nil {
		return nil, err
	}
	cfg.Server, err = newServer(parsed, cfg, baseName)
	return cfg, err
}

// tokenValue returns the token of a flag; its -file variant wins.
func tokenValue(parsed *flags, name string) (string, error) {
	file := parsed.str(name + "-file")
	if file == "" {
		return parsed.str(name), nil
	}
	deadline := time.Now().Add(tokenFileWait)
	for {
		raw, err := os.ReadFile(file)
		if err == nil {
			return strings.TrimSpace(string(raw)), nil
		}
		if !os.IsNotExist(err) || time.Now().After(deadline) {
			return "", err
		}
		time.Sleep(2 * time.Second)
	}
}

func (c *Config) setAddresses(parsed *flags) error {
	var err error
	if c.NodeIPs, err = parseIPs("node-ip", parsed.list("node-ip")); err != nil {
		return err
	}
	if c.NodeExternalIPs, err = parseIPs("node-external-ip", parsed.list("node-external-ip")); err != nil {
		return err
	}
	if len(c.NodeIPs) > 0 {
		return nil
	}
	ip, err := defaultIP()
	if err != nil {
		return err
	}
	c.NodeIPs = []net.IP{ip}
	return nil
}

// setNodeName sets the Node's name and returns it without the node id.
func (c *Config) setNodeName(parsed *flags) (string, error) {
	name := parsed.str("node-name")
	if name == "" {
		host, err := os.Hostname()
		if err != nil {
			return "", err
		}
		name = host
	}
	name = strings.ToLower(name)
	c.NodeName = name
	if !parsed.bool("with-node-id") {
		return name, nil
	}
	id, err := nodeID(filepath.Join(NodeConfigDir, "id"))
	if err != nil {
		return "", fmt.Errorf("node id: %w", err)
	}
	c.NodeName = name + "-" + id
	return name, nil
}

func newServer(parsed *flags, cfg *Config, baseName string) (*Server, error) {
	control, err := newControl(parsed, cfg, baseName)
	if err != nil {
		return nil, err
	}
	server := &Server{
		Control:           *control,
		ClusterReset:      parsed.bool("cluster-reset"),
		DatastoreEndpoint: parsed.str("datastore-endpoint"),
		DatastoreCAFile:   parsed.str("datastore-cafile"),
		DatastoreCertFile: parsed.str("datastore-certfile"),
		DatastoreKeyFile:  parsed.str("datastore-keyfile"),
		APIServerArgs:     parsed.list("kube-apiserver-arg"),
		EtcdArgs:          parsed.list("etcd-arg"),
		ExposeEtcdMetrics: parsed.bool("etcd-expose-metrics"),
		KubeconfigPath:    parsed.str("write-kubeconfig"),
		KubeconfigMode:    0o600,
	}
	if server.KubeconfigPath == "" {
		server.KubeconfigPath = "/etc/rancher/k3s/k3s.yaml"
	}
	if mode := parsed.str("write-kubeconfig-mode"); mode != "" {
		var value uint32
		if _, err := fmt.Sscanf(mode, "%o", &value); err != nil {
			return nil, fmt.Errorf("write-kubeconfig-mode %q: %w", mode, err)
		}
		server.KubeconfigMode = os.FileMode(value)
	}
	return server, nil
}

// ServerDir is the server's data, <data-dir>/server.
func (c *Config) ServerDir() string { return filepath.Join(c.DataDir, "server") }

// AgentDir is the agent's data, <data-dir>/agent.
func (c *Config) AgentDir() string { return filepath.Join(c.DataDir, "agent") }

// NodeIP is the first address of this machine.
func (c *Config) NodeIP() string { return c.NodeIPs[0].String() }

// ErrNotEmulated is the refusal of what real K3s can do and the emulator can't.
var ErrNotEmulated = errors.New("this K3s is an emulator, which doesn't do that")

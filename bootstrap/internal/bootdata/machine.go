package bootdata

import (
	_ "embed"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
	"github.com/capk3s/capk3s/pkg/k3s"
)

// Paths on the machine.
const (
	// ConfigPath is K3s' config.yaml.
	ConfigPath = "/etc/rancher/k3s/config.yaml"

	// dropInPath keeps a server that was removed from etcd from joining again, or from founding another cluster.
	dropInPath = "/etc/systemd/system/k3s.service.d/10-no-rejoin.conf"

	joinedPath = ConfigPath + ".d/90-join.yaml"
)

//go:embed bootstrap.sh
var script []byte

// plainPath are paths that mean the same to systemd, to a shell and to K3s, without quotes.
var plainPath = regexp.MustCompile(`^(/[A-Za-z0-9_.-]+)+$`)

// Role is what a machine becomes.
type Role string

// Roles of a machine.
const (
	// FirstServer founds the cluster.
	FirstServer Role = "first server"

	// JoiningServer joins the servers of a cluster.
	JoiningServer Role = "joining server"

	// Worker joins a cluster as an agent.
	Worker Role = "worker"
)

// Machine is everything that makes a K3s node of a machine.
type Machine struct {
	// Role of the machine.
	Role Role

	// Version of K3s, as [k3s.ParseVersion] takes it.
	Version string

	// Endpoint of the control plane.
	Endpoint k3s.Endpoint

	// Config is K3s' config.yaml.
	Config k3s.Config

	// Registries is K3s' registries file; empty if there is none.
	Registries []byte

	// Kubelet has fields of a KubeletConfiguration as JSON; empty if there are none.
	Kubelet []byte

	// SettingsFiles are files that settings name.
	SettingsFiles []File

	// Hardened says whether the machine follows K3s' guide to the CIS benchmark.
	Hardened bool

	// Install says where K3s comes from.
	Install bootstrapv1.InstallSpec

	// Proxy names the machine's proxies.
	Proxy bootstrapv1.ProxySpec

	// CAFiles are the certificate authorities that the first server starts with.
	CAFiles []File

	// Files of the user, in order.
	Files []File

	// PreCommands run before K3s is installed, PostCommands once it runs.
	PreCommands, PostCommands []string
}

// Plan is what makes a K3s node of a machine, in terms of files and one command line.
type Plan struct {
	// Files are written in this order.
	Files []File

	// Command runs once, after the files were written.
	Command []string
}

// Plan says what to do, with the files that only the bootstrap needs in the folder dir. An error tells the user what
// to change in the spec; it quotes neither contents nor settings.
func (m Machine) Plan(dir string) (Plan, error) {
	if _, err := k3s.ParseVersion(m.Version); err != nil {
		return Plan{}, err
	}
	if !plainPath.MatchString(m.Config.DataDir()) {
		return Plan{}, errors.New("agentConfig.dataDir must be an absolute path of letters, digits, dots, dashes and underscores")
	}
	own, err := m.ownFiles(dir)
	if err != nil {
		return Plan{}, err
	}
	if err := checkPaths(m.Files, own, dir); err != nil {
		return Plan{}, err
	}
	return Plan{
		Files:   slices.Concat(m.Files, own),
		Command: []string{"sh", ScriptPath(dir), m.command(), m.Version, m.Config.DataDir()},
	}, nil
}

// ScriptPath returns the path of the script that makes a K3s node of a machine.
func ScriptPath(dir string) string { return path.Join(dir, "bootstrap.sh") }

// command is the K3s command of the role.
func (m Machine) command() string {
	if m.Role == Worker {
		return "agent"
	}
	return "server"
}

// ownFiles are the files that the operator writes.
func (m Machine) ownFiles(dir string) ([]File, error) {
	config, err := m.Config.YAML()
	if err != nil {
		return nil, err
	}
	files := append([]File{SecretFile(ConfigPath, config)}, m.SettingsFiles...)
	if len(m.Registries) > 0 {
		file, err := registriesFile(m.Config, m.Registries)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	if len(m.Kubelet) > 0 {
		file, err := kubeletFile(m.Config, m.Kubelet)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	if m.Hardened {
		files = append(files, m.hardeningFiles()...)
	}
	if m.Role != Worker {
		files = append(files, File{Path: dropInPath, Content: dropIn(m.Config.DataDir())})
	}
	if m.Role == FirstServer {
		join, err := k3s.Config{"server": m.Endpoint.URL()}.YAML()
		if err != nil {
			return nil, err
		}
		if m.Config["datastore-endpoint"] == nil {
			files = append(files, SecretFile(path.Join(dir, "90-join.yaml"), join))
		}
		files = append(files, m.CAFiles...)
	}
	if environment := m.environment(); environment != "" {
		files = append(files, SecretFile(path.Join(dir, "environment"), []byte(environment)))
	}
	files = append(files, commandFiles(path.Join(dir, "preK3sCommands"), m.PreCommands)...)
	files = append(files, commandFiles(path.Join(dir, "postK3sCommands"), m.PostCommands)...)
	return append(files, SecretFile(ScriptPath(dir), script)), nil
}

func dropIn(dataDir string) []byte {
	return []byte("[Service]\nExecStartPre=/bin/sh -c '! test -e " + path.Join(dataDir, "server/db/etcd/tombstone") + "'\n")
}

// commandFiles makes a file of each command, which the script reads in the order of their names.
func commandFiles(dir string, commands []string) []File {
	files := make([]File, 0, len(commands))
	for i, command := range commands {
		files = append(files, File{
			Path:        fmt.Sprintf("%s/%03d", dir, i),
			Permissions: secretPermissions,
			Content:     []byte(command),
			Rendered:    true,
		})
	}
	return files
}

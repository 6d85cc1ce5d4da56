package cloudconfig

import (
	_ "embed"
	"fmt"
	"path"
	"regexp"
	"slices"

	"github.com/capk3s/capk3s/pkg/k3s"
)

// Paths on the machine.
const (
	// ConfigPath is K3s' config.yaml.
	ConfigPath = "/etc/rancher/k3s/config.yaml"

	// dropInPath keeps a server that was removed from etcd from joining again, or from founding another cluster.
	dropInPath = "/etc/systemd/system/k3s.service.d/10-no-rejoin.conf"

	runDir     = "/run/cluster-api/k3s"
	scriptPath = runDir + "/bootstrap.sh"
	joinPath   = runDir + "/90-join.yaml"
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

	// CAFiles are the certificate authorities that the first server starts with.
	CAFiles []File

	// Files of the user, in order.
	Files []File

	// PreCommands run before K3s is installed, PostCommands once it runs.
	PreCommands, PostCommands []string
}

// Render returns the cloud-config of a machine. An error tells the user what to change in the spec; it quotes neither
// contents nor settings.
func Render(m Machine) ([]byte, error) {
	if _, err := k3s.ParseVersion(m.Version); err != nil {
		return nil, err
	}
	if !plainPath.MatchString(m.Config.DataDir()) {
		return nil, fmt.Errorf("data-dir must be an absolute path of letters, digits, dots, dashes and underscores")
	}
	own, err := m.ownFiles()
	if err != nil {
		return nil, err
	}
	if err := checkPaths(m.Files, own); err != nil {
		return nil, err
	}
	d := document{
		files: slices.Concat(m.Files, own),
		run:   []string{"sh", scriptPath, m.command(), m.Version, m.Config.DataDir()},
	}
	if err := d.renderOnMachine(m.Config); err != nil {
		return nil, err
	}
	return d.encode()
}

// command is the K3s command of the role.
func (m Machine) command() string {
	if m.Role == Worker {
		return "agent"
	}
	return "server"
}

// ownFiles are the files that the operator writes.
func (m Machine) ownFiles() ([]File, error) {
	config, err := m.Config.YAML()
	if err != nil {
		return nil, err
	}
	files := []File{{Path: ConfigPath, Permissions: secretPermissions, Content: config}}
	if m.Role != Worker {
		files = append(files, File{Path: dropInPath, Content: dropIn(m.Config.DataDir())})
	}
	if m.Role == FirstServer {
		join, err := k3s.Config{"server": m.Endpoint.URL()}.YAML()
		if err != nil {
			return nil, err
		}
		files = append(files, File{Path: joinPath, Permissions: secretPermissions, Content: join})
		files = append(files, m.CAFiles...)
	}
	files = append(files, commandFiles("preK3sCommands", m.PreCommands)...)
	files = append(files, commandFiles("postK3sCommands", m.PostCommands)...)
	return append(files, File{Path: scriptPath, Permissions: secretPermissions, Content: script}), nil
}

func dropIn(dataDir string) []byte {
	return []byte("[Service]\nExecStartPre=/bin/sh -c '! test -e " + path.Join(dataDir, "server/db/etcd/tombstone") + "'\n")
}

// commandFiles makes a file of each command, which the script reads in the order of their names.
func commandFiles(field string, commands []string) []File {
	files := make([]File, 0, len(commands))
	for i, command := range commands {
		files = append(files, File{
			Path:        fmt.Sprintf("%s/%s/%03d", runDir, field, i),
			Permissions: secretPermissions,
			Content:     []byte(command),
			Rendered:    true,
		})
	}
	return files
}

func checkPaths(files, own []File) error {
	taken := map[string]bool{joinedPath: true}
	for _, file := range own {
		taken[file.Path] = true
	}
	for _, file := range files {
		if taken[path.Clean(file.Path)] {
			return fmt.Errorf("file %s is written by the operator; remove it from files", file.Path)
		}
	}
	return nil
}

// renderOnMachine makes a template of the document if a file or a setting holds an expression over cloud-init's
// instance data.
func (d *document) renderOnMachine(config k3s.Config) error {
	d.templated = slices.ContainsFunc(d.files, func(f File) bool { return f.Rendered && hasExpression(string(f.Content)) })
	inConfig := false
	text, err := config.YAMLFunc(func(value string) string {
		inConfig = inConfig || hasExpression(value)
		// A value is in the config.yaml, which is in the cloud-config.
		return template(value, 2)
	})
	if err != nil {
		return err
	}
	if !inConfig {
		return nil
	}
	d.templated = true
	i := slices.IndexFunc(d.files, func(f File) bool { return f.Path == ConfigPath })
	d.files[i].text = string(text)
	return nil
}

package machine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/capk3s/capk3s/test/sandbox/guest"
)

const (
	recordFile  = "machine.json"
	processFile = "process.json"
)

// cloudConfig is the machine's /etc/cloud/cloud.cfg: the one datasource that
// needs no network, and the modules that bootstrap data relies on.
const cloudConfig = `datasource_list: [NoCloud]
disable_root: false
network: {config: disabled}
cloud_init_modules: [bootcmd, write-files]
cloud_config_modules: [runcmd]
cloud_final_modules: [write-files-deferred, scripts-user]
system_info:
  distro: debian
  paths: {cloud_dir: /var/lib/cloud, run_dir: /run/cloud-init}
output: {all: "| tee -a /var/log/cloud-init-output.log"}
log_cfgs:
- |
  [loggers]
  keys=root,cloudinit
  [handlers]
  keys=console,file
  [formatters]
  keys=plain
  [logger_root]
  level=WARNING
  handlers=console
  [logger_cloudinit]
  level=DEBUG
  qualname=cloudinit
  handlers=file
  [handler_console]
  class=StreamHandler
  level=WARNING
  formatter=plain
  args=(sys.stderr,)
  [handler_file]
  class=FileHandler
  level=DEBUG
  formatter=plain
  args=('/var/log/cloud-init.log', 'a', 'UTF-8')
  [formatter_plain]
  format=%(asctime)s %(filename)s[%(levelname)s]: %(message)s
`

// notCopied are the parts of the host's /etc that a machine gets none or its own of.
var notCopied = map[string]bool{
	"cloud": true, "rancher": true, "systemd": true, "kubernetes": true, "ssh": true, "sudoers": true,
	"sudoers.d": true, "shadow": true, "shadow-": true, "gshadow": true, "gshadow-": true,
	"hostname": true, "hosts": true, "resolv.conf": true, "netns": true,
}

// writable maps the machine's writable folders to those in its own folder.
var writable = map[string]string{
	"/etc": "etc", "/var": "var", "/run": "run", "/root": "root", "/opt": "opt", "/usr/local/bin": "bin",
}

// makeDisk lays out the machine's writable folders.
func (m *Machine) makeDisk(userData []byte) error {
	dir := m.dir()
	if err := os.RemoveAll(dir); err != nil { // half made by a crashed provider
		return err
	}
	for _, sub := range []string{
		"run", "root", "opt", "bin", "etc/cloud/cloud.cfg.d", "etc/systemd/system",
		"var/lib/cloud/seed/nocloud", "var/lib/sandbox/bin", "var/log", "var/tmp", "var/cache",
	} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(m.LogDir(), 0o755); err != nil {
		return err
	}
	if err := copyEtc("/etc", filepath.Join(dir, "etc")); err != nil {
		return err
	}
	hosts := fmt.Sprintf("127.0.0.1 localhost\n::1 localhost\n%s %s\n", m.record.Address.Addr(), m.record.Name)
	files := map[string]string{
		"etc/cloud/cloud.cfg":                  cloudConfig,
		"etc/hostname":                         m.record.Name + "\n",
		"etc/hosts":                            hosts,
		"etc/resolv.conf":                      "",
		"var/lib/cloud/seed/nocloud/user-data": string(userData),
		"var/lib/cloud/seed/nocloud/meta-data": fmt.Sprintf(
			"instance-id: %q\nlocal-hostname: %q\nprovider_id: %q\n", m.record.Name, m.record.Name, m.record.ProviderID),
		inVar(guest.InstallScript): string(guest.Script),
		inVar(guest.VersionsFile):  strings.Join(m.host.versions(), "\n") + "\n",
		inVar(guest.RealK3s):       "",
	}
	if m.record.Preinstalled != "" {
		files["opt/install.sh"] = string(guest.Script)
		files["bin/k3s.version"] = m.record.Preinstalled + "\n"
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return m.makeLinks()
}

// makeLinks puts the machine's programs in place; they are bound into BinDir
// when it starts.
func (m *Machine) makeLinks() error {
	links := map[string]string{
		"var/run":        "/run",
		"bin/systemctl":  guest.BinDir + "/sandbox-machine",
		"bin/journalctl": guest.BinDir + "/sandbox-machine",
		"bin/curl":       guest.BinDir + "/sandbox-machine",
	}
	if m.record.Preinstalled != "" {
		links["bin/k3s"] = guest.BinDir + "/k3s-emulator"
	}
	for name, target := range links {
		if err := os.Symlink(target, filepath.Join(m.dir(), name)); err != nil {
			return err
		}
	}
	return nil
}

// inVar turns a path under the machine's /var into one in the machine's folder.
func inVar(path string) string { return strings.TrimPrefix(path, "/") }

// copyEtc copies what can be read of the host's /etc.
func copyEtc(from, to string) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			if errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if notCopied[name] {
			if entry.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}
		return copyEntry(path, filepath.Join(to, name), entry)
	})
}

func copyEntry(from, to string, entry fs.DirEntry) error {
	switch {
	case entry.IsDir():
		return os.MkdirAll(to, 0o755)
	case entry.Type()&fs.ModeSymlink != 0:
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return os.Symlink(target, to)
	case !entry.Type().IsRegular():
		return nil
	}
	data, err := os.ReadFile(from)
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	info, err := entry.Info()
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, info.Mode().Perm()|0o200)
}

package machine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/capk3s/capk3s/test/sandbox/guest"
)

// Machine is one sandbox machine.
type Machine struct {
	host   *Host
	record record
}

// String is namespace/name.
func (m *Machine) String() string { return m.record.Namespace + "/" + m.record.Name }

// Name of the machine's object, and its hostname.
func (m *Machine) Name() string { return m.record.Name }

// Namespace of the machine's object.
func (m *Machine) Namespace() string { return m.record.Namespace }

// Address of the machine on the bridge.
func (m *Machine) Address() netip.Addr { return m.record.Address.Addr() }

// LogDir is the machine's /var/log as seen from the world; it outlives the machine.
func (m *Machine) LogDir() string {
	return filepath.Join(m.host.LogDir, m.record.Namespace+"_"+m.record.Name)
}

// ConsoleLog is the path of what the machine printed while booting.
func (m *Machine) ConsoleLog() string { return filepath.Join(m.LogDir(), "console.log") }

func (m *Machine) dir() string {
	return filepath.Join(m.host.Dir, m.record.Namespace+"_"+m.record.Name)
}

// Path turns a path inside the machine into one of the world. Only the writable
// folders have one of their own.
func (m *Machine) Path(inside string) string {
	inside = filepath.Clean(inside)
	if rest, ok := strings.CutPrefix(inside, "/var/log"); ok {
		return filepath.Join(m.LogDir(), rest)
	}
	for mount, own := range writable {
		if rest, ok := strings.CutPrefix(inside, mount); ok && (rest == "" || rest[0] == '/') {
			return filepath.Join(m.dir(), own, rest)
		}
	}
	return inside
}

// ReadFile reads a file of the machine, running or not.
func (m *Machine) ReadFile(inside string) ([]byte, error) {
	data, err := os.ReadFile(m.Path(inside))
	if err != nil {
		return nil, fmt.Errorf("reading %s of machine %s: %w", inside, m, err)
	}
	return data, nil
}

// Command is a command to be run inside the machine, which must be running.
func (m *Machine) Command(ctx context.Context, name string, args ...string) (*exec.Cmd, error) {
	running, err := m.process()
	if err != nil {
		return nil, err
	}
	enter := []string{
		fmt.Sprintf("--target=%d", running.PID), "--mount", "--net", "--pid", "--uts", "--ipc", "--root", "--wd=/",
		"--", "/usr/bin/env", "-i", "HOME=/root", "TERM=" + os.Getenv("TERM"),
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", name,
	}
	return exec.CommandContext(ctx, "nsenter", append(enter, args...)...), nil
}

// Exec runs a command inside the machine and returns its output, both streams.
func (m *Machine) Exec(ctx context.Context, name string, args ...string) (string, error) {
	cmd, err := m.Command(ctx, name, args...)
	if err != nil {
		return "", err
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("running %s in machine %s: %w: %s", name, m, err, out)
	}
	return string(out), nil
}

// Boot says how far the machine's bootstrap data has come.
type Boot struct {
	// Done: the sentinel file of the bootstrap contract is there.
	Done bool
	// Failed: cloud-init is through, without the sentinel or with errors.
	Failed bool
	// Errors that cloud-init reported.
	Errors []string
}

// Boot looks at the sentinel and cloud-init's result.
func (m *Machine) Boot() (Boot, error) {
	var boot Boot
	if _, err := os.Stat(m.Path(guest.Sentinel)); err == nil {
		boot.Done = true
	}
	data, err := os.ReadFile(m.Path(guest.CloudInitResult))
	if errors.Is(err, fs.ErrNotExist) {
		return boot, nil
	}
	if err != nil {
		return boot, fmt.Errorf("reading boot result of machine %s: %w", m, err)
	}
	var result struct {
		V1 struct {
			Errors []string `json:"errors"`
		} `json:"v1"`
	}
	if err := json.Unmarshal(data, &result); err != nil {
		return boot, fmt.Errorf("reading boot result of machine %s: %w", m, err)
	}
	boot.Errors = result.V1.Errors
	boot.Failed = !boot.Done
	return boot, nil
}

package guest

import (
	"bufio"
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Unit is a service as its unit file and drop-ins describe it. Only the
// directives that change what the service manager does are kept.
type Unit struct {
	// Name with its suffix: "k3s.service".
	Name string
	// Type is "simple", "exec", "oneshot" or "notify"; default "simple".
	Type string
	// StartPre run one after the other before Start; Start has one command,
	// or several for a oneshot.
	StartPre, Start []Command
	// Environment holds NAME=value assignments; EnvironmentFiles are read at
	// each start, those with a leading "-" may be missing.
	Environment, EnvironmentFiles []string
	// Restart is "no", "always" or "on-failure"; default "no".
	Restart string
	// RestartDelay is the pause before a restart; default 100 ms.
	RestartDelay time.Duration
	// KillMode is "control-group" or "process"; default "control-group".
	KillMode string
	// WorkingDirectory of the commands; default "/".
	WorkingDirectory string
	// RemainAfterExit keeps a oneshot active when its commands are done.
	RemainAfterExit bool
	// Wants names the units that are started with this one.
	Wants []string
	// WantedBy names the targets that pull the unit in at boot.
	WantedBy []string
}

// Command is one line of ExecStart or ExecStartPre.
type Command struct {
	Words []string
	// MayFail is the "-" prefix: a failure doesn't count.
	MayFail bool
}

// unitName completes a name as systemctl does: "k3s" is "k3s.service".
func unitName(name string) string {
	name = filepath.Base(name)
	if filepath.Ext(name) == "" || !strings.HasSuffix(name, ".service") && !strings.HasSuffix(name, ".target") {
		return name + ".service"
	}
	return name
}

// loadUnit reads dir/<name> and then dir/<name>.d/*.conf in the order of their
// names. It returns an error that wraps fs.ErrNotExist if there is no such unit.
func loadUnit(dir, name string) (*Unit, error) {
	unit := &Unit{
		Name: name, Type: "simple", Restart: "no", RestartDelay: 100 * time.Millisecond,
		KillMode: "control-group", WorkingDirectory: "/",
	}
	files := []string{filepath.Join(dir, name)}
	dropIns, err := filepath.Glob(filepath.Join(dir, name+".d", "*.conf"))
	if err != nil {
		return nil, fmt.Errorf("listing drop-ins of %s: %w", name, err)
	}
	slices.Sort(dropIns)
	for _, file := range append(files, dropIns...) {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("reading unit %s: %w", name, err)
		}
		if err := unit.parse(data); err != nil {
			return nil, fmt.Errorf("reading %s: %w", file, err)
		}
	}
	return unit, nil
}

// parse applies one file's directives on top of what is there.
func (u *Unit) parse(data []byte) error {
	section := ""
	scanner := bufio.NewScanner(bytes.NewReader(joinContinued(data)))
	for scanner.Scan() {
		line := strings.TrimSpace(scanner.Text())
		if line == "" || line[0] == '#' || line[0] == ';' {
			continue
		}
		if line[0] == '[' {
			section = strings.Trim(line, "[]")
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if !ok {
			return fmt.Errorf("missing '=' in %q", line)
		}
		if err := u.set(section+"."+strings.TrimSpace(key), u.specifiers(strings.TrimSpace(value))); err != nil {
			return fmt.Errorf("%s: %w", strings.TrimSpace(key), err)
		}
	}
	return scanner.Err()
}

func (u *Unit) set(key, value string) error {
	var err error
	switch key {
	case "Service.Type":
		u.Type = value
	case "Service.Restart":
		u.Restart = value
	case "Service.RestartSec":
		u.RestartDelay, err = parseSeconds(value)
	case "Service.KillMode":
		u.KillMode = value
	case "Service.WorkingDirectory":
		u.WorkingDirectory = value
	case "Service.RemainAfterExit":
		u.RemainAfterExit = value == "yes" || value == "true"
	case "Service.ExecStart":
		u.Start, err = addCommand(u.Start, value)
	case "Service.ExecStartPre":
		u.StartPre, err = addCommand(u.StartPre, value)
	case "Service.EnvironmentFile":
		u.EnvironmentFiles = addOrReset(u.EnvironmentFiles, value, []string{value})
	case "Service.Environment":
		var words []string
		words, err = splitWords(value)
		u.Environment = addOrReset(u.Environment, value, words)
	case "Unit.Wants":
		for name := range strings.FieldsSeq(value) {
			u.Wants = append(u.Wants, unitName(name))
		}
	case "Install.WantedBy":
		u.WantedBy = append(u.WantedBy, strings.Fields(value)...)
	}
	return err
}

// addOrReset is systemd's rule for lists: an empty value forgets what was set.
func addOrReset(list []string, value string, items []string) []string {
	if value == "" {
		return nil
	}
	return append(list, items...)
}

func addCommand(list []Command, value string) ([]Command, error) {
	if value == "" {
		return nil, nil
	}
	command := Command{}
	for value != "" && strings.ContainsRune("-@:+!", rune(value[0])) {
		command.MayFail = command.MayFail || value[0] == '-'
		value = value[1:]
	}
	words, err := splitWords(value)
	if err != nil {
		return nil, err
	}
	command.Words = words
	return append(list, command), nil
}

// specifiers replaces the few that unit files of services use: %n, %N, %p, %H
// and %%.
func (u *Unit) specifiers(value string) string {
	if !strings.Contains(value, "%") {
		return value
	}
	bare := strings.TrimSuffix(u.Name, filepath.Ext(u.Name))
	host, _ := os.Hostname() // an empty name is what an unknown one comes to
	return strings.NewReplacer("%%", "%", "%n", u.Name, "%N", bare, "%p", bare, "%H", host).Replace(value)
}

// environ is the environment of the unit's commands, as a map.
func (u *Unit) environ() (map[string]string, error) {
	env := map[string]string{
		"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"LANG": "C.UTF-8",
	}
	for _, assignment := range u.Environment {
		name, value, _ := strings.Cut(assignment, "=")
		env[name] = value
	}
	for _, path := range u.EnvironmentFiles {
		path, optional := strings.CutPrefix(path, "-")
		file, err := readEnvFile(path)
		if os.IsNotExist(err) && optional {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading environment file of %s: %w", u.Name, err)
		}
		maps.Copy(env, file)
	}
	return env, nil
}

// parseSeconds reads a systemd time span: "5s", "1min", "500ms", or seconds
// without a unit.
func parseSeconds(value string) (time.Duration, error) {
	if seconds, err := strconv.ParseFloat(value, 64); err == nil {
		return time.Duration(seconds * float64(time.Second)), nil
	}
	return time.ParseDuration(strings.ReplaceAll(strings.ReplaceAll(value, " ", ""), "min", "m"))
}

// joinContinued joins a line that ends in a backslash with the next one.
func joinContinued(data []byte) []byte {
	return bytes.ReplaceAll(data, []byte("\\\n"), []byte(" "))
}

package config

import (
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
)

// flags holds the values of a sub-command's flags, after config.yaml, the
// command line and the environment have had their say.
type flags struct {
	values map[string][]string
	// args are the arguments that were parsed: config.yaml's first.
	args []string
}

// parseFlags applies K3s' precedence: the command line beats config.yaml, which
// beats the environment.
func parseFlags(command string, args []string) (*flags, error) {
	specs := specsFor(command)
	path, explicit := configPath(args)
	fromFile, err := fileArgs(path, explicit)
	if err != nil {
		return nil, err
	}
	if command != CommandAgent {
		fromFile = dropUnknown(fromFile, specs)
	}
	all := append(fromFile, args...)

	set := flag.NewFlagSet(command, flag.ContinueOnError)
	set.SetOutput(io.Discard)
	parsed := map[string]*flagValue{}
	for name, spec := range specs {
		value, ok := parsed[spec.name]
		if !ok {
			value = &flagValue{spec: spec}
			parsed[spec.name] = value
		}
		set.Var(value, name, "")
	}
	if err := set.Parse(all); err != nil {
		return nil, err
	}
	if set.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", set.Arg(0))
	}

	out := &flags{values: map[string][]string{}, args: all}
	for name, value := range parsed {
		if err := value.fallBack(); err != nil {
			return nil, err
		}
		out.values[name] = value.values
	}
	return out, nil
}

// configPath finds the configuration file, which must be known before the flags
// are parsed.
func configPath(args []string) (path string, explicit bool) {
	if env := os.Getenv("K3S_CONFIG_FILE"); env != "" {
		return env, true
	}
	for i, arg := range args {
		name, value, hasValue := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if !strings.HasPrefix(arg, "-") || (name != "config" && name != "c") {
			continue
		}
		if hasValue {
			return value, true
		}
		if i+1 < len(args) {
			return args[i+1], true
		}
	}
	return "/etc/rancher/k3s/config.yaml", false
}

// flagValue collects what was given for one flag; it is a flag.Value.
type flagValue struct {
	spec   flagSpec
	values []string
}

// String shows the last value.
func (v *flagValue) String() string {
	if v == nil || len(v.values) == 0 {
		return ""
	}
	return v.values[len(v.values)-1]
}

// IsBoolFlag lets `--flag` stand for `--flag=true`.
func (v *flagValue) IsBoolFlag() bool { return v.spec.kind == boolean }

// Set checks one value and keeps it.
func (v *flagValue) Set(value string) error {
	switch v.spec.kind {
	case boolean:
		parsed, err := strconv.ParseBool(value)
		if err != nil {
			return fmt.Errorf("parse error")
		}
		v.values = []string{strconv.FormatBool(parsed)}
	case integer:
		if _, err := strconv.Atoi(value); err != nil {
			return fmt.Errorf("parse error")
		}
		v.values = []string{value}
	case duration:
		if _, err := time.ParseDuration(value); err != nil {
			return fmt.Errorf("parse error")
		}
		v.values = []string{value}
	case list:
		v.values = append(v.values, value)
	case csv:
		v.values = append(v.values, splitList(value)...)
	default:
		v.values = []string{value}
	}
	return nil
}

// fallBack takes the environment's value, or the default, for a flag that
// wasn't given.
func (v *flagValue) fallBack() error {
	if len(v.values) > 0 {
		return nil
	}
	for _, name := range v.spec.env {
		if value := os.Getenv(name); value != "" {
			if err := v.Set(value); err != nil {
				return fmt.Errorf("environment variable %s: %w", name, err)
			}
			return nil
		}
	}
	if v.spec.def != "" {
		v.values = []string{v.spec.def}
	}
	return nil
}

func splitList(value string) []string {
	var out []string
	for _, item := range strings.Split(value, ",") {
		if item = strings.TrimSpace(item); item != "" {
			out = append(out, item)
		}
	}
	return out
}

func (f *flags) str(name string) string {
	if values := f.values[name]; len(values) > 0 {
		return values[len(values)-1]
	}
	return ""
}

func (f *flags) bool(name string) bool { return f.str(name) == "true" }

func (f *flags) list(name string) []string { return f.values[name] }

func (f *flags) int(name string, def int) int {
	value, err := strconv.Atoi(f.str(name))
	if err != nil || value == 0 {
		return def
	}
	return value
}

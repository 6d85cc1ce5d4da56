package config

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	"go.yaml.in/yaml/v2"
)

// fileArgs turns config.yaml and its drop-ins into command line arguments,
// one `--key=value` for each element. A missing config.yaml is no error, unless
// it was named explicitly.
func fileArgs(path string, explicit bool) ([]string, error) {
	files := []string{}
	if path != "" {
		files = append(files, path)
	}
	dropIns, err := dropInFiles(path + ".d")
	if err != nil {
		return nil, fmt.Errorf("list drop-ins of %s: %w", path, err)
	}
	files = append(files, dropIns...)

	var keys []string
	values := map[string][]string{}
	for i, file := range files {
		raw, err := readConfig(file)
		if os.IsNotExist(err) && i == 0 && !explicit {
			continue
		}
		if err != nil {
			return nil, err
		}
		if keys, err = merge(keys, values, raw); err != nil {
			return nil, fmt.Errorf("read %s: %w", file, err)
		}
	}

	var args []string
	for _, key := range keys {
		prefix := "--"
		if len(key) == 1 {
			prefix = "-"
		}
		for _, value := range values[key] {
			args = append(args, prefix+key+"="+value)
		}
	}
	return args, nil
}

// dropInFiles lists the YAML files of a config.yaml.d folder, alphabetically.
func dropInFiles(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var files []string
	for _, entry := range entries {
		ext := filepath.Ext(entry.Name())
		if !entry.IsDir() && (ext == ".yaml" || ext == ".yml") {
			files = append(files, filepath.Join(dir, entry.Name()))
		}
	}
	slices.Sort(files)
	return files, nil
}

// readConfig reads a file, or fetches it when the name is a URL.
func readConfig(name string) ([]byte, error) {
	if !strings.HasPrefix(name, "http://") && !strings.HasPrefix(name, "https://") {
		return os.ReadFile(name)
	}
	client := http.Client{Timeout: 30 * time.Second}
	resp, err := client.Get(name)
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", name, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("get %s: %s", name, resp.Status)
	}
	return io.ReadAll(resp.Body)
}

// merge adds the keys of one file to those of the files before: a key replaces,
// `key+` appends.
func merge(keys []string, values map[string][]string, raw []byte) ([]string, error) {
	var content yaml.MapSlice
	if err := yaml.Unmarshal(raw, &content); err != nil {
		return keys, err
	}
	for _, item := range content {
		name := toString(item.Key)
		key := strings.TrimSuffix(name, "+")
		if !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
		if key == name {
			values[key] = nil
		}
		values[key] = append(values[key], toStrings(item.Value)...)
	}
	return keys, nil
}

func toStrings(value any) []string {
	items, ok := value.([]any)
	if !ok {
		return []string{toString(value)}
	}
	var out []string
	for _, item := range items {
		out = append(out, toString(item))
	}
	return out
}

// toString shows a YAML value as K3s does: what YAML took for a number or a
// boolean is not what was typed any more.
func toString(value any) string {
	if value == nil {
		return ""
	}
	return fmt.Sprint(value)
}

// dropUnknown removes the arguments whose flag the server doesn't know, as
// `k3s server` does with what comes from config.yaml.
func dropUnknown(args []string, specs map[string]flagSpec) []string {
	var known []string
	for _, arg := range args {
		name, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if _, ok := specs[name]; !ok {
			logrus.Warnf("Unknown flag --%s found in config.yaml, skipping", name)
			continue
		}
		known = append(known, arg)
	}
	return known
}

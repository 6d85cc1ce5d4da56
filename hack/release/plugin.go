package release

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// PluginName is what the plugin of clusterctl is called; in a release, the platform follows.
const PluginName = "clusterctl-k3s"

const pluginFolder = "./pkg/plugin/cmd/clusterctl-k3s"

// Platforms are those that a release has the plugin for.
var Platforms = []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64", "windows/amd64"}

// addPlugin compiles the plugin of clusterctl for each platform.
func (f Files) addPlugin(platforms []string) error {
	folder, err := os.MkdirTemp("", "release")
	if err != nil {
		return fmt.Errorf("making a folder for the plugin: %w", err)
	}
	defer os.RemoveAll(folder)
	for _, platform := range platforms {
		name := pluginFile(platform)
		program := filepath.Join(folder, name)
		// Neither the folder of the checkout nor its state may be in the program.
		if _, err := goCommand(platform, "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", program, pluginFolder); err != nil {
			return fmt.Errorf("compiling the plugin for %s: %w", platform, err)
		}
		if f[name], err = os.ReadFile(program); err != nil {
			return fmt.Errorf("reading the plugin for %s: %w", platform, err)
		}
	}
	return nil
}

// pluginFile is the name of the program for a platform.
func pluginFile(platform string) string {
	name := PluginName + "-" + strings.ReplaceAll(platform, "/", "-")
	if strings.HasPrefix(platform, "windows/") {
		name += ".exe"
	}
	return name
}

// goCommand runs go for a platform, as the image's build does, and returns what it prints.
func goCommand(platform string, args ...string) (string, error) {
	system, architecture, found := strings.Cut(platform, "/")
	if !found {
		return "", fmt.Errorf("%q is no platform: write it like linux/amd64", platform)
	}
	cmd := exec.Command("go", args...)
	cmd.Dir = source()
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+system, "GOARCH="+architecture)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	return string(out), nil
}

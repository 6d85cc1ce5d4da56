// Package version tells which K3s version the emulator plays.
package version

import (
	"os"
	"strings"
)

// File holds the version when the environment doesn't; the install script
// writes it.
const File = "/usr/local/bin/k3s.version"

// fallback is played when nobody says otherwise.
const fallback = "v1.36.3+k3s1"

// Current returns the version to play: K3S_VERSION, else the content of File,
// else the default.
func Current() string {
	if version := strings.TrimSpace(os.Getenv("K3S_VERSION")); version != "" {
		return version
	}
	if raw, err := os.ReadFile(File); err == nil && len(strings.TrimSpace(string(raw))) > 0 {
		return strings.TrimSpace(string(raw))
	}
	return fallback
}

// Minor returns the minor version, e.g. 36 of v1.36.3+k3s1; 0 if there is none.
func Minor(version string) int {
	parts := strings.Split(strings.TrimPrefix(version, "v"), ".")
	if len(parts) < 2 {
		return 0
	}
	minor := 0
	for _, digit := range parts[1] {
		if digit < '0' || digit > '9' {
			return 0
		}
		minor = minor*10 + int(digit-'0')
	}
	return minor
}

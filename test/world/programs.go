package world

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/capk3s/capk3s/test/sandbox/machine"
)

// CacheDir is where "make test-binaries" keeps its results: $CAPK3S_CACHE, by
// default capk3s in the user's cache folder.
func CacheDir() (string, error) {
	if dir := os.Getenv("CAPK3S_CACHE"); dir != "" {
		return dir, nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("finding the cache folder: %w", err)
	}
	return filepath.Join(dir, "capk3s"), nil
}

// Program returns the path of a test program: from the folder that
// KUBEBUILDER_ASSETS names if it is there, and from the cache otherwise.
func Program(name string) (string, error) {
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	for _, dir := range []string{os.Getenv("KUBEBUILDER_ASSETS"), filepath.Join(cache, "bin")} {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); dir != "" && err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s is not built yet: run \"make test-binaries\"", name)
}

// restartDelay stands in for the five seconds that K3s' units, and the ten that
// a kubelet, wait before they start again, so that tests needn't.
const restartDelay = time.Second

// Host is where this world's machines live.
func (w *World) Host() (*machine.Host, error) {
	cache, err := CacheDir()
	if err != nil {
		return nil, err
	}
	k3s, err := realK3s()
	if err != nil {
		return nil, err
	}
	return &machine.Host{
		Dir:          filepath.Join(w.Dir, "machines"),
		LogDir:       filepath.Join(w.LogDir, "machines"),
		BinDir:       filepath.Join(cache, "bin"),
		AssetsDir:    os.Getenv("KUBEBUILDER_ASSETS"),
		K3sBinary:    k3s,
		Bridge:       Bridge,
		Subnet:       Subnet,
		RestartDelay: restartDelay,
	}, nil
}

// realK3s is the absolute path of the binary that K3S_BINARY names; empty for none.
func realK3s() (string, error) {
	name := os.Getenv("K3S_BINARY")
	if name == "" {
		return "", nil
	}
	path, err := filepath.Abs(name)
	if err != nil {
		return "", fmt.Errorf("finding K3S_BINARY: %w", err)
	}
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("finding K3S_BINARY: %w", err)
	}
	return path, nil
}

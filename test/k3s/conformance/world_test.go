//go:build conformance

package conformance

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
)

// insideEnv tells the test process that it runs inside the world already.
const insideEnv = "CONFORMANCE_WORLD"

// binary is the K3s that is tested; emulated tells whether it is the emulator.
var (
	binary   string
	emulated bool
)

func TestMain(m *testing.M) {
	if err := findBinary(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if os.Getenv(insideEnv) == "" {
		os.Exit(enterWorld())
	}
	if err := prepareWorld(); err != nil {
		fmt.Fprintln(os.Stderr, "prepare world:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// findBinary picks K3S_BINARY, or the emulator out of the cache.
func findBinary() error {
	binary = os.Getenv("K3S_BINARY")
	if binary == "" {
		emulated = true
		binary = filepath.Join(cacheDir(), "bin", "k3s-emulator")
	}
	absolute, err := filepath.Abs(binary)
	if err != nil {
		return err
	}
	binary = absolute
	if _, err := os.Stat(binary); err != nil {
		return fmt.Errorf("K3s binary: %w", err)
	}
	return nil
}

func cacheDir() string {
	if dir := os.Getenv("CAPK3S_CACHE"); dir != "" {
		return dir
	}
	base, err := os.UserCacheDir()
	if err != nil {
		base = os.TempDir()
	}
	return filepath.Join(base, "capk3s")
}

// besideOthers lets a test run beside others. Each has machines with numbers of its own.
func besideOthers(t *testing.T) {
	t.Helper()
	// go test takes the result of an earlier run while what a test asks the environment for is the same. It doesn't
	// see programs that are run.
	_ = os.Getenv("K3S_CHECKSUM")
	t.Parallel()
}

// enterWorld runs this test binary again inside new namespaces, and returns its
// exit code. The kernel ends everything in there with it.
func enterWorld() int {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), insideEnv+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	attr := &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS,
		Pdeathsig:  syscall.SIGKILL,
	}
	if os.Getuid() != 0 {
		attr.Cloneflags |= syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	cmd.SysProcAttr = attr
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt, syscall.SIGTERM)
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "open world (as root, or where user namespaces are allowed):", err)
		return 1
	}
	go func() {
		<-interrupts
		_ = cmd.Process.Kill()
	}()
	err := cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return max(exit.ExitCode(), 1)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// gateway is the test process's own address on the machines' network.
const gateway = "10.99.0.254"

func prepareWorld() error {
	for _, command := range [][]string{
		{"mount", "--make-rprivate", "/"},
		{"mount", "-t", "proc", "proc", "/proc"},
		{"mount", "-t", "tmpfs", "tmpfs", "/run"},
		{"ip", "link", "set", "lo", "up"},
		{"ip", "link", "add", "br0", "type", "bridge"},
		{"ip", "address", "add", gateway + "/24", "dev", "br0"},
		{"ip", "link", "set", "br0", "up"},
	} {
		if err := runCommand(command...); err != nil {
			return err
		}
	}
	return nil
}

func runCommand(command ...string) error {
	output, err := exec.Command(command[0], command[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%v: %w: %s", command, err, output)
	}
	return nil
}

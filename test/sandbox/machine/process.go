package machine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/capk3s/capk3s/test/sandbox/guest"
)

// ErrNotRunning says that a machine is off.
var ErrNotRunning = errors.New("machine is not running")

// process is the machine's first process as the world sees it. The start time
// tells it from a later process with the same number.
type process struct {
	PID     int    `json:"child-pid"`
	Started string `json:"started,omitempty"`
}

const (
	// patience is how long the kernel or a program may take for what it does at once.
	patience = 30 * time.Second
	// shutdownPatience leaves services their time to stop.
	shutdownPatience = 2 * time.Minute
)

// Start boots a machine that is off; a running one is left alone. The machine
// doesn't end with the caller: it belongs to the world.
func (m *Machine) Start(ctx context.Context) error {
	if m.Running() {
		return nil
	}
	if err := emptyDir(m.Path("/run")); err != nil {
		return fmt.Errorf("emptying /run of machine %s: %w", m, err)
	}
	console, err := os.OpenFile(m.ConsoleLog(), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("opening the console of machine %s: %w", m, err)
	}
	defer console.Close()
	infoPath := filepath.Join(m.dir(), "bwrap.json")
	info, err := os.Create(infoPath)
	if err != nil {
		return fmt.Errorf("starting machine %s: %w", m, err)
	}
	defer info.Close()

	// setsid --fork leaves the machine to the world's init.
	cmd := exec.CommandContext(ctx, "setsid", append([]string{"--fork", "ip", "netns", "exec", m.netns()}, m.bwrap()...)...)
	cmd.Stdout, cmd.Stderr = console, console
	cmd.ExtraFiles = []*os.File{info} // file descriptor 3
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("starting machine %s: %w", m, err)
	}
	if err := m.awaitInit(ctx, infoPath); err != nil {
		return fmt.Errorf("waiting for machine %s to start, see %s: %w", m, m.ConsoleLog(), err)
	}
	return nil
}

// awaitInit records the machine's first process and waits until its init is up.
func (m *Machine) awaitInit(ctx context.Context, infoPath string) error {
	var started process
	err := poll(ctx, patience, func() (bool, error) {
		return readJSON(infoPath, &started) == nil && started.PID != 0, nil
	})
	if err != nil {
		return err
	}
	started.Started, _ = startTime(started.PID) // if it is gone by now, it isn't running
	if err := writeJSON(filepath.Join(m.dir(), processFile), started); err != nil {
		return err
	}
	return poll(ctx, patience, func() (bool, error) {
		if _, err := m.process(); err != nil {
			return false, err
		}
		_, err := os.Stat(m.Path(guest.Socket))
		return err == nil, nil
	})
}

// bwrap is the command line of the machine's sandbox.
func (m *Machine) bwrap() []string {
	args := []string{
		"bwrap", "--info-fd", "3", "--unshare-pid", "--unshare-uts", "--unshare-ipc", "--hostname", m.record.Name,
		"--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp",
	}
	for _, mount := range []string{"/etc", "/var", "/run", "/root", "/opt", "/usr/local/bin"} {
		args = append(args, "--bind", filepath.Join(m.dir(), writable[mount]), mount)
	}
	args = append(args, "--bind", m.LogDir(), "/var/log", "--tmpfs", guest.BinDir)
	for _, program := range []string{"sandbox-machine", "k3s-emulator", "kube-apiserver", "kubectl"} {
		args = append(args, "--ro-bind-try", m.host.program(program), filepath.Join(guest.BinDir, program))
	}
	if m.host.K3sBinary != "" {
		args = append(args, "--ro-bind", m.host.K3sBinary, guest.RealK3s)
	}
	return append(args, "--chdir", "/", filepath.Join(guest.BinDir, "sandbox-machine"),
		"init", "--restart-delay", m.host.RestartDelay.String())
}

// program finds a test program, in AssetsDir first.
func (h *Host) program(name string) string {
	if h.AssetsDir != "" {
		path := filepath.Join(h.AssetsDir, name)
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return filepath.Join(h.BinDir, name)
}

// Running tells whether the machine is on; a frozen machine is.
func (m *Machine) Running() bool {
	_, err := m.process()
	return err == nil
}

// Started tells whether the machine has ever been started.
func (m *Machine) Started() bool {
	_, err := os.Stat(filepath.Join(m.dir(), processFile))
	return err == nil
}

func (m *Machine) process() (process, error) {
	var p process
	err := readJSON(filepath.Join(m.dir(), processFile), &p)
	if errors.Is(err, fs.ErrNotExist) {
		return p, fmt.Errorf("%w: %s", ErrNotRunning, m)
	}
	if err != nil {
		return p, fmt.Errorf("looking for the process of machine %s: %w", m, err)
	}
	if started, err := startTime(p.PID); err != nil || started != p.Started {
		return p, fmt.Errorf("%w: %s", ErrNotRunning, m)
	}
	return p, nil
}

// Kill ends all of the machine's processes at once, as pulling the plug would.
// The machine stays off until it is started again.
func (m *Machine) Kill(ctx context.Context) error {
	running, err := m.process()
	if errors.Is(err, ErrNotRunning) {
		return nil
	}
	if err != nil {
		return err
	}
	// The first process of a process namespace takes all others along.
	if err := syscall.Kill(running.PID, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("killing machine %s: %w", m, err)
	}
	err = poll(ctx, patience, func() (bool, error) {
		pids, err := m.pids(ctx)
		if err == nil && len(pids) > 0 && !m.Running() {
			// A frozen bubblewrap outside can't see its child's end.
			for _, pid := range pids {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		return len(pids) == 0, err
	})
	if err != nil {
		return fmt.Errorf("waiting for the end of machine %s: %w", m, err)
	}
	return nil
}

// Shutdown stops the machine's services in good order and then the machine.
func (m *Machine) Shutdown(ctx context.Context) error {
	running, err := m.process()
	if errors.Is(err, ErrNotRunning) {
		return nil
	}
	if err != nil {
		return err
	}
	// Init is the first child of the process namespace's first process.
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", running.PID, running.PID))
	if err != nil {
		return fmt.Errorf("looking for the init of machine %s: %w", m, err)
	}
	first, _, _ := strings.Cut(string(children), " ")
	if init, err := strconv.Atoi(first); err == nil {
		_ = syscall.Kill(init, syscall.SIGTERM) // gone already: as wanted
	}
	if err := poll(ctx, shutdownPatience, func() (bool, error) { return !m.Running(), nil }); err != nil {
		return fmt.Errorf("waiting for machine %s to shut down: %w", m, err)
	}
	return nil
}

// Reboot shuts the machine down and starts it again. Like any machine it comes
// back with its disk, and with an empty /run.
func (m *Machine) Reboot(ctx context.Context) error {
	if err := m.Shutdown(ctx); err != nil {
		return err
	}
	return m.Start(ctx)
}

// Wipe kills the machine and empties /var/lib/rancher and /etc/rancher, as
// losing its data disk would. It stays off until it is started again.
func (m *Machine) Wipe(ctx context.Context) error {
	if err := m.Kill(ctx); err != nil {
		return err
	}
	for _, dir := range []string{"/var/lib/rancher", "/etc/rancher"} {
		if err := os.RemoveAll(m.Path(dir)); err != nil {
			return fmt.Errorf("wiping %s of machine %s: %w", dir, m, err)
		}
	}
	return nil
}

// Delete kills the machine and removes its network and its disk. Its logs stay.
// Deleting a machine that was never completely made is fine.
func (m *Machine) Delete(ctx context.Context) error {
	if err := m.Kill(ctx); err != nil {
		return err
	}
	m.removeNetwork(ctx)
	if err := os.RemoveAll(m.dir()); err != nil {
		return fmt.Errorf("removing the disk of machine %s: %w", m, err)
	}
	return nil
}

// Freeze stops all of the machine's processes where they are; connections to it
// stay open and nobody answers.
func (m *Machine) Freeze(ctx context.Context) error {
	if _, err := m.process(); err != nil {
		return err
	}
	err := poll(ctx, patience, func() (bool, error) {
		// A process may have forked before its turn came: until all stand still.
		return m.signalAll(ctx, syscall.SIGSTOP, "T")
	})
	if err != nil {
		return fmt.Errorf("freezing machine %s: %w", m, err)
	}
	return nil
}

// Thaw lets a frozen machine go on.
func (m *Machine) Thaw(ctx context.Context) error {
	if _, err := m.signalAll(ctx, syscall.SIGCONT, ""); err != nil {
		return fmt.Errorf("thawing machine %s: %w", m, err)
	}
	return nil
}

// signalAll sends sig to every process and tells whether all of them were in
// the wanted state already.
func (m *Machine) signalAll(ctx context.Context, sig syscall.Signal, state string) (bool, error) {
	pids, err := m.pids(ctx)
	if err != nil {
		return false, err
	}
	all := true
	for _, pid := range pids {
		fields, err := stat(pid)
		if err != nil || fields[0] == "Z" {
			continue // has ended
		}
		if fields[0] != state {
			all = false
			_ = syscall.Kill(pid, sig)
		}
	}
	return all, nil
}

// startTime of a living process, in clock ticks since boot.
func startTime(pid int) (string, error) {
	fields, err := stat(pid)
	if err != nil {
		return "", err
	}
	if fields[0] == "Z" || fields[0] == "X" {
		return "", fs.ErrNotExist
	}
	return fields[19], nil
}

// stat returns the fields of /proc/PID/stat from the state on.
func stat(pid int) ([]string, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, err
	}
	// The command's name in parentheses may hold anything.
	fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	if len(fields) < 20 {
		return nil, fmt.Errorf("short stat of process %d", pid)
	}
	return fields, nil
}

// poll waits for done, for as long as ctx allows and at most for limit.
func poll(ctx context.Context, limit time.Duration, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		ok, err := done()
		if ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func emptyDir(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if err := os.RemoveAll(filepath.Join(dir, entry.Name())); err != nil {
			return err
		}
	}
	return nil
}

package world

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// detachSignal asks the world's init to go on without the program that opened it.
const detachSignal = syscall.SIGUSR1

// The lifeline is a socket between the program outside and the world's init.
// When the program ends, however it does, the kernel closes its end, and the
// init ends at that; with this first process all others in its process namespace
// end. One byte from the init tells the program that the world was detached.
const lifelineFD = 3

func socketPair() (ours, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("making a socket pair: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "lifeline"), os.NewFile(uintptr(fds[1]), "lifeline"), nil
}

// takeLifeline is the init's end.
func takeLifeline() *os.File {
	unix.CloseOnExec(lifelineFD)
	return os.NewFile(lifelineFD, "lifeline")
}

// ErrNoWorld says that a PID file leads to no living world.
var ErrNoWorld = errors.New("no world is running")

// Detach has the program that opened the world exit with 0, and lets the world
// go on with the caller until the caller ends or End is called. Output goes
// nowhere from then on.
func (w *World) Detach() error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("opening %s: %w", os.DevNull, err)
	}
	defer null.Close()
	for fd := range 3 {
		if err := unix.Dup2(int(null.Fd()), fd); err != nil {
			return fmt.Errorf("letting the terminal go: %w", err)
		}
	}
	return syscall.Kill(1, detachSignal)
}

// letGo is Detach's part in the init.
func letGo(lifeline io.Writer) error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("opening %s: %w", os.DevNull, err)
	}
	defer null.Close()
	if _, err := lifeline.Write([]byte{1}); err != nil {
		return fmt.Errorf("telling the program outside: %w", err)
	}
	for fd := range 3 {
		if err := unix.Dup2(int(null.Fd()), fd); err != nil {
			return fmt.Errorf("letting the terminal go: %w", err)
		}
	}
	return nil
}

// initProcess is the world's init as its PID file describes it. The start time
// tells it from a later process with the same number.
type initProcess struct {
	PID     int
	Started string
}

// record writes the PID file, if there is to be one.
func (s settings) record(pid int) error {
	if s.pidFile == "" {
		return nil
	}
	started, err := startTime(pid)
	if err != nil {
		return nil // over already, as its exit code will tell
	}
	data, err := json.Marshal(initProcess{PID: pid, Started: started})
	if err != nil {
		return fmt.Errorf("encoding the PID file: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(s.pidFile), 0o755); err != nil {
		return fmt.Errorf("making the PID file's folder: %w", err)
	}
	if err := os.WriteFile(s.pidFile, data, 0o600); err != nil {
		return fmt.Errorf("writing the PID file: %w", err)
	}
	return nil
}

func (s settings) forget() {
	if s.pidFile != "" {
		_ = os.Remove(s.pidFile) // a file of a world that is over does no harm
	}
}

// find returns the living init that a PID file describes, or ErrNoWorld.
func find(pidFile string) (initProcess, error) {
	var p initProcess
	data, err := os.ReadFile(pidFile)
	if err != nil {
		return p, ErrNoWorld
	}
	if err := json.Unmarshal(data, &p); err != nil {
		return p, ErrNoWorld
	}
	if started, err := startTime(p.PID); err != nil || started != p.Started {
		return p, ErrNoWorld
	}
	return p, nil
}

func startTime(pid int) (string, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", err
	}
	// After the command's name in parentheses, which may hold anything.
	fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	if len(fields) < 20 || fields[0] == "Z" {
		return "", os.ErrProcessDone
	}
	return fields[19], nil
}

// Join makes a command that runs in the world that the PID file describes. It
// is called from outside.
func Join(pidFile, name string, args ...string) (*exec.Cmd, error) {
	world, err := find(pidFile)
	if err != nil {
		return nil, err
	}
	enter := []string{fmt.Sprintf("--target=%d", world.PID), "--mount", "--net", "--pid", "--ipc", "--uts"}
	if os.Geteuid() != 0 {
		enter = append(enter, "--user", "--preserve-credentials")
	}
	return exec.Command("nsenter", append(append(enter, "--", name), args...)...), nil
}

// End ends the world that the PID file describes and everything in it, and
// returns once it is gone. It is called from outside.
func End(pidFile string) error {
	world, err := find(pidFile)
	if err != nil {
		return err
	}
	handle, err := unix.PidfdOpen(world.PID, 0)
	if err != nil {
		return fmt.Errorf("opening the world's init: %w", err)
	}
	defer unix.Close(handle)
	if err := unix.PidfdSendSignal(handle, unix.SIGKILL, nil, 0); err != nil {
		return fmt.Errorf("ending the world's init: %w", err)
	}
	// Readable once the process is gone, and its process namespace with it.
	for {
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(handle), Events: unix.POLLIN}}, -1)
		if !errors.Is(err, unix.EINTR) {
			settings{pidFile: pidFile}.forget()
			return err
		}
	}
}

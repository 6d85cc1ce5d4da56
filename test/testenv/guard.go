package testenv

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// guard kills the processes of the environment when the test process dies without stopping them, which is what
// happens at go test's timeout. It is a shell that waits for the end of its input.
type guard struct {
	cmd   *exec.Cmd
	input io.WriteCloser
}

func newGuard(pids ...int) (*guard, error) {
	if len(pids) == 0 {
		var err error
		if pids, err = children(); err != nil {
			return nil, err
		}
	}
	args := []string{"-c", `cat >/dev/null; kill -KILL "$@"`, "guard"}
	for _, pid := range pids {
		args = append(args, strconv.Itoa(pid))
	}
	cmd := exec.Command("sh", args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	input, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("preparing the guard of the test processes: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the guard of the test processes: %w", err)
	}
	return &guard{cmd: cmd, input: input}, nil
}

// release ends the guard without killing anything. Call it once the processes are gone.
func (g *guard) release() {
	if g == nil {
		return
	}
	_ = g.cmd.Process.Kill()
	_ = g.cmd.Wait()
	_ = g.input.Close()
}

// children returns the processes that this process started and that still run.
func children() ([]int, error) {
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", os.Getpid()))
	if err != nil {
		return nil, fmt.Errorf("listing child processes: %w", err)
	}
	var pids []int
	for _, list := range lists {
		content, err := os.ReadFile(list)
		if err != nil {
			continue // The thread has ended.
		}
		for field := range strings.FieldsSeq(string(content)) {
			pid, err := strconv.Atoi(field)
			if err != nil {
				return nil, fmt.Errorf("reading %s: %w", list, err)
			}
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

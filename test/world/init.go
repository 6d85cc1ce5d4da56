package world

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
)

// beInit is the world's first process: it furnishes the namespaces, starts the
// program proper and reaps every process that loses its parent, until the
// program ends. The world ends with this process.
func beInit() (int, error) {
	lifeline := takeLifeline()
	if err := furnish(); err != nil {
		return 0, err
	}
	self, err := os.Executable()
	if err != nil {
		return 0, fmt.Errorf("finding this program: %w", err)
	}
	if err := os.Setenv(stageVariable, stageInside); err != nil {
		return 0, fmt.Errorf("preparing the program's environment: %w", err)
	}
	program, err := os.StartProcess(self, os.Args, &os.ProcAttr{
		Env: os.Environ(), Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
	})
	if err != nil {
		return 0, fmt.Errorf("starting the program in the world: %w", err)
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, detachSignal)
	gone := make(chan struct{})
	go func() {
		_, _ = lifeline.Read(make([]byte, 1)) // nothing is ever sent this way
		close(gone)
	}()
	cut := gone
	ended := make(chan int, 1)
	go reap(program.Pid, ended)
	for {
		select {
		case code := <-ended:
			return code, nil
		case <-cut:
			return 0, errors.New("the program that opened the world has ended")
		case s := <-signals:
			if s == detachSignal {
				cut = nil // never ready
				if err := letGo(lifeline); err != nil {
					return 0, err
				}
				continue
			}
			_ = program.Signal(s) // fails only when it has ended
		}
	}
}

// reap waits for every process that ends, and reports the exit code of one.
func reap(program int, ended chan<- int) {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil {
			ended <- 1 // no child is left, not even the program
			return
		}
		if pid == program {
			ended <- exitCode(status)
			return
		}
	}
}

// furnish mounts what the new namespaces need and makes the bridge.
func furnish() error {
	mounts := []struct {
		source, target, kind string
		flags                uintptr
		data                 string
	}{
		{target: "/", flags: syscall.MS_REC | syscall.MS_PRIVATE},
		{source: "proc", target: "/proc", kind: "proc"},
		{source: "tmpfs", target: "/run", kind: "tmpfs", data: "mode=0755"},
	}
	for _, m := range mounts {
		if err := syscall.Mount(m.source, m.target, m.kind, m.flags, m.data); err != nil {
			return explain(fmt.Errorf("mounting %s: %w", m.target, err))
		}
	}
	w := here()
	for _, dir := range []string{w.Dir, w.LogDir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("making folder %s: %w", dir, err)
		}
	}
	gateway := Subnet.Addr().Next()
	for _, line := range []string{
		"link set lo up",
		// Without an address of its own a bridge changes it as ports come and go, and
		// the machines and pods lose the host for as long as they take to notice.
		"link add " + Bridge + " address 02:00:00:00:00:01 type bridge",
		fmt.Sprintf("address add %s/%d dev %s", gateway, Subnet.Bits(), Bridge),
		"link set " + Bridge + " up",
	} {
		if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", line, err, out)
		}
	}
	return nil
}

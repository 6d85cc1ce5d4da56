package world

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// startPatience is how long a program may take to become ready; a busy machine
// with two cores needs a part of it.
const startPatience = 2 * time.Minute

// stopPatience is how long a process may take to end after SIGTERM.
const stopPatience = 30 * time.Second

// Process is a program that runs in the world, with its output in a log file.
// It can be stopped, killed and started again any number of times, and it ends
// with the world.
type Process struct {
	// Name of the program, for people.
	Name string
	// LogPath is the file that has the output of all its runs.
	LogPath string

	path string
	args []string
	env  []string
	// ready is nil once the program does its work.
	ready func(context.Context) error
	// restarts has the program started again when it ends without being told to.
	restarts bool

	mu  sync.Mutex
	run *run
}

// run is one run of a process; err may be read once ended is closed.
type run struct {
	cmd   *exec.Cmd
	ended chan struct{}
	err   error
	// told to end; guarded by the process's mutex.
	told bool
}

// Start starts the program. It is an error if it runs already.
func (p *Process) Start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.start()
}

// start is Start with the mutex held.
func (p *Process) start() error {
	if p.run != nil && !p.run.over() {
		return fmt.Errorf("%s runs already", p.Name)
	}
	log, err := os.OpenFile(p.LogPath, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("opening the log of %s: %w", p.Name, err)
	}
	defer log.Close()
	cmd := exec.Command(p.path, p.args...)
	cmd.Env = append(os.Environ(), p.env...)
	cmd.Stdout, cmd.Stderr = log, log
	// A terminal's Ctrl-C is for the program that owns the world.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", p.Name, err)
	}
	r := &run{cmd: cmd, ended: make(chan struct{})}
	p.run = r
	go func() {
		r.err = cmd.Wait()
		close(r.ended)
		if p.restarts {
			p.startAgain(r)
		}
	}()
	return nil
}

// startAgain does what a kubelet does when a container ended by itself: a
// manager does so, for one, when it can't renew its lease.
func (p *Process) startAgain(after *run) {
	time.Sleep(restartDelay) // as the kubelet backs off
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.run == after && !after.told {
		_ = p.start() // the log has the end of the last run
	}
}

func (r *run) over() bool {
	select {
	case <-r.ended:
		return true
	default:
		return false
	}
}

// Running tells whether the program runs.
func (p *Process) Running() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.run != nil && !p.run.over()
}

// PID of the current or last run; 0 before the first.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.run == nil {
		return 0
	}
	return p.run.cmd.Process.Pid
}

// Stop asks the program to end and waits until it has; one that doesn't is killed.
func (p *Process) Stop() { p.end(syscall.SIGTERM) }

// Kill ends the program at once, without a chance to clean up.
func (p *Process) Kill() { p.end(syscall.SIGKILL) }

func (p *Process) end(sig syscall.Signal) {
	p.mu.Lock()
	r := p.run
	if r == nil {
		p.mu.Unlock()
		return
	}
	r.told = true
	p.mu.Unlock()
	_ = r.cmd.Process.Signal(sig) // fails only when it has ended
	select {
	case <-r.ended:
	case <-time.After(stopPatience):
		_ = r.cmd.Process.Kill()
		<-r.ended
	}
}

// Restart stops the program and starts it again.
func (p *Process) Restart() error {
	p.Stop()
	return p.Start()
}

// Crash kills the program, starts it again and returns when it is ready.
func (p *Process) Crash(ctx context.Context) error {
	p.Kill()
	if err := p.Start(); err != nil {
		return err
	}
	return p.AwaitReady(ctx)
}

// Signal sends a signal, for example SIGSTOP and SIGCONT.
func (p *Process) Signal(sig syscall.Signal) error {
	if !p.Running() {
		return fmt.Errorf("%s doesn't run", p.Name)
	}
	return syscall.Kill(p.PID(), sig)
}

// AwaitReady returns nil once the program is ready. It gives up when the program
// ends, when ctx does and after two minutes, with the last error and the place
// of the log.
func (p *Process) AwaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := p.ready(ctx)
		if err == nil {
			return nil
		}
		if !p.Running() {
			return fmt.Errorf("%s has ended, see %s: %w", p.Name, p.LogPath, p.run.err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s, see %s: %w", p.Name, p.LogPath, errors.Join(ctx.Err(), err))
		case <-ticker.C:
		}
	}
}

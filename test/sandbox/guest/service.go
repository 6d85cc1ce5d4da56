package guest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// State is what a service does right now, in systemd's words.
type State struct {
	// Active is "inactive", "activating", "active", "deactivating" or "failed".
	Active string
	// Sub is "dead", "start-pre", "start", "running", "exited", "auto-restart",
	// "stop-sigterm" or "failed".
	Sub string
	// MainPID is 0 when no main process runs.
	MainPID int
	// Restarts counts automatic restarts since the last start by a person.
	Restarts int
	// Result is "success", "exit-code", "signal" or "protocol".
	Result string
	// ExitStatus is the last exit code, or the signal's number.
	ExitStatus int
}

// errFirstAttempt says why a start job failed, with the sentence of systemctl.
var (
	errControlProcess = errors.New("the control process exited with error code")
	errProtocol       = errors.New("the service did not take the steps required by its unit configuration")
	errStopped        = errors.New("the job was canceled")
)

// stopTimeout is systemd's default time from SIGTERM to SIGKILL.
const stopTimeout = 90 * time.Second

// service runs one unit: starts it, watches its main process, restarts it.
type service struct {
	unit *Unit
	// logFile gets the commands' output.
	logFile string
	// notifyDir is where the sockets of sd_notify go.
	notifyDir string
	// restartDelay is the pause before an automatic restart.
	restartDelay time.Duration

	mu    sync.Mutex
	state State
	// job is the start attempt under way or last made.
	job *job
	// cancel ends the run loop; nil when none runs. done closes with it.
	cancel context.CancelFunc
	done   chan struct{}
	// kick cuts the pause before an automatic restart short.
	kick chan struct{}
}

// job is one attempt to start; err may be read once done is closed.
type job struct {
	once sync.Once
	done chan struct{}
	err  error
}

func newJob() *job { return &job{done: make(chan struct{})} }

func (j *job) finish(err error) {
	j.once.Do(func() {
		j.err = err
		close(j.done)
	})
}

func newService(unit *Unit, logFile, notifyDir string, restartDelay time.Duration) *service {
	return &service{
		unit: unit, logFile: logFile, notifyDir: notifyDir, restartDelay: restartDelay,
		state: State{Active: "inactive", Sub: "dead", Result: "success"},
		kick:  make(chan struct{}, 1),
	}
}

// start asks for the service to run and returns the attempt to wait for.
func (s *service) start() *job {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.cancel == nil:
		ctx, cancel := context.WithCancel(context.Background())
		s.cancel, s.done, s.job = cancel, make(chan struct{}), newJob()
		s.state.Restarts = 0
		go s.run(ctx, s.done)
	case s.state.Sub == "auto-restart":
		s.job = newJob()
		select {
		case s.kick <- struct{}{}:
		default: // already on its way
		}
	}
	return s.job
}

// stop ends the service and returns when its main process is gone.
func (s *service) stop() {
	s.mu.Lock()
	cancel, done := s.cancel, s.done
	s.mu.Unlock()
	if cancel == nil {
		return
	}
	cancel()
	<-done
}

func (s *service) current() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

// loaded is the unit as last read; daemon-reload may replace it at any time.
func (s *service) loaded() *Unit {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unit
}

func (s *service) update(change func(*State)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.state)
}

// run makes attempts until the service is stopped or needs no restart.
func (s *service) run(ctx context.Context, done chan struct{}) {
	defer close(done)
	for {
		s.mu.Lock()
		attempt := s.job
		s.mu.Unlock()

		err := s.attempt(ctx, attempt)
		attempt.finish(err)
		if ctx.Err() != nil || !s.restarts(err) {
			s.finish(ctx, err)
			return
		}
		s.mu.Lock()
		s.state.Active, s.state.Sub = "activating", "auto-restart"
		s.state.Restarts++
		s.job = newJob()
		delay := s.restartDelay
		s.mu.Unlock()
		select {
		case <-ctx.Done():
			s.finish(ctx, errStopped)
			return
		case <-s.kick:
		case <-time.After(delay):
		}
	}
}

func (s *service) restarts(err error) bool {
	switch s.loaded().Restart {
	case "always":
		return true
	case "on-failure":
		return err != nil
	default:
		return false
	}
}

func (s *service) finish(ctx context.Context, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.job.finish(errStopped)
	s.cancel = nil
	s.state.MainPID = 0
	switch {
	case err == nil && ctx.Err() == nil && s.unit.Type == "oneshot" && s.unit.RemainAfterExit:
		s.state.Active, s.state.Sub = "active", "exited"
	case err == nil || ctx.Err() != nil:
		s.state.Active, s.state.Sub = "inactive", "dead"
	default:
		s.state.Active, s.state.Sub = "failed", "failed"
	}
}

// attempt starts the service once, finishes the job when it is up, and returns
// when its main process has ended: nil for a clean exit.
func (s *service) attempt(ctx context.Context, attempt *job) error {
	env, err := s.loaded().environ()
	if err != nil {
		return s.failed(err)
	}
	s.update(func(st *State) { st.Active, st.Sub, st.Result = "activating", "start-pre", "success" })
	for _, command := range s.loaded().StartPre {
		if err := s.wait(ctx, s.command(command, env)); err != nil && !command.MayFail {
			return s.failed(err)
		}
	}
	s.update(func(st *State) { st.Sub = "start" })
	if s.loaded().Type == "oneshot" {
		for _, command := range s.loaded().Start {
			if err := s.wait(ctx, s.command(command, env)); err != nil && !command.MayFail {
				return s.failed(err)
			}
		}
		return nil
	}
	return s.runMain(ctx, attempt, env)
}

func (s *service) runMain(ctx context.Context, attempt *job, env map[string]string) error {
	if len(s.loaded().Start) != 1 {
		return s.failed(fmt.Errorf("%s has %d commands, want one", s.loaded().Name, len(s.loaded().Start)))
	}
	up := func() {
		s.update(func(st *State) { st.Active, st.Sub = "active", "running" })
		attempt.finish(nil)
	}
	if s.loaded().Type == "notify" {
		path := filepath.Join(s.notifyDir, s.loaded().Name)
		closeSocket, err := listenNotify(path, up)
		if err != nil {
			return s.failed(err)
		}
		defer closeSocket()
		env["NOTIFY_SOCKET"] = path
	}
	cmd := s.command(s.loaded().Start[0], env)
	started := func() {
		s.update(func(st *State) { st.MainPID = cmd.Process.Pid })
		if s.loaded().Type != "notify" {
			up()
		}
	}
	err := s.waitStarted(ctx, cmd, started)
	wasUp := s.current().Active == "active"
	s.update(func(st *State) { st.MainPID = 0 })
	if err != nil {
		return s.failed(err)
	}
	if !wasUp {
		s.update(func(st *State) { st.Result = "protocol" })
		return errProtocol
	}
	return nil
}

// failed records how a command ended and returns the job's error.
func (s *service) failed(err error) error {
	var exit *exec.ExitError
	s.update(func(st *State) {
		st.Result, st.ExitStatus = "exit-code", 1
		if errors.As(err, &exit) {
			status, _ := exit.Sys().(syscall.WaitStatus)
			st.ExitStatus = status.ExitStatus()
			if status.Signaled() {
				st.Result, st.ExitStatus = "signal", int(status.Signal())
			}
		}
	})
	s.log(fmt.Sprintf("%s: %v", s.loaded().Name, err))
	return errControlProcess
}

func (s *service) log(line string) {
	file, err := os.OpenFile(s.logFile, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return // the log is a help, and there is nowhere else to say so
	}
	defer file.Close()
	fmt.Fprintf(file, "%s systemd: %s\n", time.Now().UTC().Format(time.RFC3339), line)
}

func (s *service) command(command Command, env map[string]string) *exec.Cmd {
	words := expandWords(command.Words, env)
	if len(words) == 0 {
		words = []string{"/bin/false"}
	}
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Dir = s.loaded().WorkingDirectory
	for name, value := range env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd
}

func (s *service) wait(ctx context.Context, cmd *exec.Cmd) error {
	return s.waitStarted(ctx, cmd, func() {})
}

// waitStarted runs cmd to its end; when ctx is done it is asked to stop, and
// killed if it doesn't.
func (s *service) waitStarted(ctx context.Context, cmd *exec.Cmd, started func()) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	// A file, not a pipe: Wait must not hang on what the process leaves behind.
	output, err := os.OpenFile(s.logFile, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer output.Close()
	cmd.Stdout, cmd.Stderr = output, output
	if err := cmd.Start(); err != nil {
		return err
	}
	started()
	ended := make(chan struct{})
	var exit error
	go func() {
		defer close(ended)
		exit = cmd.Wait()
	}()
	select {
	case <-ended:
		return exit
	case <-ctx.Done():
	}
	s.update(func(st *State) { st.Active, st.Sub = "deactivating", "stop-sigterm" })
	s.signal(cmd, syscall.SIGTERM)
	select {
	case <-ended:
	case <-time.After(stopTimeout):
		s.signal(cmd, syscall.SIGKILL)
		<-ended
	}
	return nil
}

// signal reaches the main process alone with KillMode=process, and otherwise
// its process group, the nearest thing to a control group that needs no cgroups.
func (s *service) signal(cmd *exec.Cmd, sig syscall.Signal) {
	pid := cmd.Process.Pid
	if s.loaded().KillMode != "process" {
		pid = -pid
	}
	_ = syscall.Kill(pid, sig) // fails only when it is gone already
}

// listenNotify opens the socket of sd_notify and calls ready at READY=1.
func listenNotify(path string, ready func()) (closeSocket func(), err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("making the notify folder: %w", err)
	}
	_ = os.Remove(path) // left by an earlier attempt
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return nil, fmt.Errorf("opening the notify socket: %w", err)
	}
	go func() {
		buffer := make([]byte, 4096)
		for {
			n, err := conn.Read(buffer)
			if err != nil {
				return // closed
			}
			for line := range strings.SplitSeq(string(buffer[:n]), "\n") {
				if line == "READY=1" {
					ready()
				}
			}
		}
	}()
	return func() { conn.Close() }, nil
}

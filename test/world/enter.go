// Package world gives tests and the demo a world of their own: network, mount
// and process namespaces (and, for an ordinary user, a user namespace) with a
// bridge that machines are plugged into and, in it, a management cluster made
// of real programs. Nothing in a world can be reached from outside or reach
// out, it takes no port of the host, and everything in it ends with the program
// that opened it, however that ends.
package world

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
)

// stageVariable tells a program how far into the world it is.
const stageVariable = "CAPK3S_WORLD_STAGE"

const (
	stageInit   = "init"
	stageInside = "inside"
)

// Option changes how a world is opened.
type Option func(*settings)

type settings struct{ pidFile string }

// PIDFile has the world leave a file outside, by which Join and End find it. It
// is an error to enter a world whose file belongs to one that is still there.
func PIDFile(path string) Option { return func(s *settings) { s.pidFile = path } }

// Bridge is the name of the world's bridge, Subnet its network. The bridge has
// the first address; machines get those that follow, control plane endpoints
// those of the last /24; the two before are for pods and management clusters.
const Bridge = "br0"

// Subnet of the bridge. Each world has it to itself.
var Subnet = netip.MustParsePrefix("10.213.0.0/16")

// Endpoints is the part of Subnet that control plane endpoints come from. There
// is enough of it for eight management clusters.
var Endpoints = netip.MustParsePrefix("10.213.255.0/24")

// World is where the calling program runs once Enter has returned.
type World struct {
	// Dir is for everything that may end with the world. It is in memory.
	Dir string
	// LogDir is for logs. It outlives the world if CAPK3S_LOGS names a folder.
	LogDir string

	// pods is the number of pods that were run.
	pods atomic.Int32
}

// Enter has the calling program go on in a world of its own. To be called first
// thing in main or TestMain: outside a world it starts the program again inside,
// with the same arguments and streams, and exits with its exit code; inside it
// returns. Where no world can be opened it exits with a message that says what
// is missing.
func Enter(options ...Option) *World {
	var s settings
	for _, option := range options {
		option(&s)
	}
	switch os.Getenv(stageVariable) {
	case stageInside:
		return here()
	case stageInit:
		exit(beInit())
	default:
		exit(open(s))
	}
	return nil
}

// exit ends a stage of the program: with the next stage's exit code, or with 1
// and the error on stderr.
func exit(code int, err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "world:", err)
		code = 1
	}
	os.Exit(code)
}

// here describes the world that the program is in.
func here() *World {
	w := &World{Dir: "/run/world", LogDir: os.Getenv("CAPK3S_LOGS")}
	if w.LogDir == "" {
		w.LogDir = filepath.Join(w.Dir, "logs")
	}
	return w
}

// open starts the world's init in new namespaces and waits for it.
func open(s settings) (int, error) {
	if err := checkPrograms(); err != nil {
		return 0, err
	}
	if _, err := find(s.pidFile); err == nil {
		return 0, errors.New("another one is still running")
	}
	self, err := os.Executable()
	if err != nil {
		return 0, fmt.Errorf("finding this program: %w", err)
	}
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), stageVariable+"="+stageInit)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS,
		// Signals from the terminal are passed on, rather than had by all.
		Setpgid: true,
	}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	lifeline, theirs, err := socketPair()
	if err != nil {
		return 0, err
	}
	defer lifeline.Close()
	cmd.ExtraFiles = []*os.File{theirs} // lifelineFD
	if err := cmd.Start(); err != nil {
		return 0, explain(err)
	}
	theirs.Close()
	if err := s.record(cmd.Process.Pid); err != nil {
		return 0, err
	}
	return wait(cmd, s, lifeline)
}

// explain says what to do where the system doesn't allow namespaces.
func explain(err error) error {
	const advice = "namespaces are not allowed here: run as root, or allow unprivileged user namespaces " +
		"(on Debian sysctl kernel.unprivileged_userns_clone=1, on Ubuntu sysctl kernel.apparmor_restrict_unprivileged_userns=0; " +
		"a container needs to be privileged)"
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EINVAL) {
		return fmt.Errorf("%s: %w", advice, err)
	}
	return fmt.Errorf("opening namespaces: %w", err)
}

func checkPrograms() error {
	var missing []string
	for _, program := range []string{"ip", "bwrap", "nsenter", "setsid", "cloud-init"} {
		if _, err := exec.LookPath(program); err != nil {
			missing = append(missing, program)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("missing on this machine: %s; \"make deps\" says how to get them", strings.Join(missing, ", "))
	}
	return nil
}

// wait passes signals on to the process until it ends, and returns its exit
// code; or until it is detached, and returns 0. The second interrupt ends it at
// once.
func wait(cmd *exec.Cmd, s settings, lifeline io.Reader) (int, error) {
	letGo := make(chan struct{})
	go func() {
		if n, _ := lifeline.Read(make([]byte, 1)); n == 1 {
			close(letGo)
		}
	}()
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	interrupts := 0
	for {
		select {
		case <-letGo:
			return 0, nil
		case err := <-ended:
			s.forget()
			var exit *exec.ExitError
			if err != nil && !errors.As(err, &exit) {
				return 0, fmt.Errorf("waiting for the world: %w", err)
			}
			return exitCode(cmd.ProcessState.Sys().(syscall.WaitStatus)), nil
		case s := <-signals:
			if s == syscall.SIGINT {
				interrupts++
			}
			if interrupts > 1 {
				s = syscall.SIGKILL
			}
			_ = cmd.Process.Signal(s) // fails only when it has ended
		}
	}
}

// exitCode is what a shell would give for the status.
func exitCode(status syscall.WaitStatus) int {
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}

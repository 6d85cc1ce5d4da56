package guest

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// Init is the machine's first program: it brings up the service manager and
// the enabled services, has cloud-init work through its stages, and then stays
// until SIGTERM, which shuts the machine down. It returns the exit code.
// Everything it says goes to console.
func Init(restartDelay time.Duration, console io.Writer) int {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)

	for _, dir := range []string{runDir, "/run/lock", "/run/systemd/system", unitDir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			fmt.Fprintln(console, "init:", err)
			return 1
		}
	}
	listener, err := net.Listen("unix", Socket)
	if err != nil {
		fmt.Fprintln(console, "init: opening the service manager's socket:", err)
		return 1
	}
	manager := &Manager{UnitDir: unitDir, RunDir: runDir, LogDir: logDir, RestartDelay: restartDelay}
	go manager.Serve(listener)
	manager.StartEnabled()

	go cloudInit(console)
	<-stop
	fmt.Fprintln(console, "init: shutting down")
	manager.StopAll()
	return 0
}

// cloudInit runs the stages that a distribution's boot runs, in their order.
func cloudInit(console io.Writer) {
	stages := [][]string{
		{"init", "--local"},
		{"init"},
		{"modules", "--mode=config"},
		{"modules", "--mode=final"},
	}
	begin := time.Now()
	for _, stage := range stages {
		cmd := exec.Command("/usr/bin/cloud-init", stage...)
		cmd.Stdout, cmd.Stderr = console, console
		cmd.Env = []string{
			"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
			"LANG=C.UTF-8", "HOME=/root",
		}
		if err := cmd.Run(); err != nil {
			// As at a real boot, the next stage runs all the same.
			fmt.Fprintf(console, "init: cloud-init %s: %v\n", strings.Join(stage, " "), err)
		}
	}
	fmt.Fprintf(console, "init: cloud-init took %s\n", time.Since(begin).Round(time.Millisecond))
}

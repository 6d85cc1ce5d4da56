// Command sandbox-machine is the one program inside a sandbox machine. Called
// as "sandbox-machine init" it is the machine's init; through links with their
// names it is systemctl, journalctl and curl.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/capk3s/capk3s/test/sandbox/guest"
)

func main() {
	os.Exit(run(filepath.Base(os.Args[0]), os.Args[1:]))
}

func run(name string, args []string) int {
	switch name {
	case "systemctl":
		return guest.Systemctl(args, os.Stdout, os.Stderr)
	case "journalctl":
		return guest.Journalctl(args, os.Stdout, os.Stderr)
	case "curl":
		return guest.Curl(args, os.Stdout, os.Stderr)
	}
	flags := flag.NewFlagSet("sandbox-machine init", flag.ExitOnError)
	restartDelay := flags.Duration("restart-delay", 0, "takes the place of every unit's RestartSec if not zero")
	if len(args) == 0 || args[0] != "init" {
		fmt.Fprintln(os.Stderr, "usage: sandbox-machine init [--restart-delay DURATION]")
		return 2
	}
	if err := flags.Parse(args[1:]); err != nil {
		return 2
	}
	return guest.Init(*restartDelay, os.Stdout)
}

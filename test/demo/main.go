// Command demo shows the operator at work: in a world of its own it sets up a
// management cluster, founds a K3s cluster with three servers and two workers,
// scales its control plane down and up again, and deletes it.
//
//	demo         run it; with KEEP=1 in the environment the cluster is left running
//	demo shell   open a shell in the world of a demo that runs
//	demo down    end a demo that was left running
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/capk3s/capk3s/test/world"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	cache, err := world.CacheDir()
	if err != nil {
		return err
	}
	pidFile := filepath.Join(cache, "demo", "pid")
	switch {
	case len(args) == 0:
		return demonstrate(pidFile, filepath.Join(cache, "demo", "logs"))
	case len(args) == 1 && args[0] == "shell":
		return shell(pidFile)
	case len(args) == 1 && args[0] == "down":
		err := world.End(pidFile)
		if errors.Is(err, world.ErrNoWorld) {
			return errors.New("no demo is running")
		}
		return err
	}
	return errors.New("usage: demo [shell | down]")
}

// demonstrate runs the demo in a world of its own. Its logs outlive it, until
// the next one.
func demonstrate(pidFile, logs string) error {
	if os.Getenv("CAPK3S_LOGS") == "" {
		if err := os.Setenv("CAPK3S_LOGS", logs); err != nil {
			return fmt.Errorf("setting the log folder: %w", err)
		}
	}
	w := world.Enter(world.PIDFile(pidFile))
	if w.LogDir == logs {
		if err := os.RemoveAll(logs); err != nil {
			return fmt.Errorf("removing the logs of the last demo: %w", err)
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	d := &demo{report: newReport(os.Stdout), world: w, keep: os.Getenv("KEEP") != "" && os.Getenv("KEEP") != "0"}
	if err := d.run(ctx); err != nil {
		if ctx.Err() != nil {
			return errors.New("interrupted; nothing is left running")
		}
		return fmt.Errorf("%w\nThe logs of all programs and machines are in %s", err, w.LogDir)
	}
	return nil
}

// Command k3s-emulator plays the parts of K3s that joining, running and leaving
// a cluster are made of. It is installed as `k3s` on the machines of the tests.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/sirupsen/logrus"

	"github.com/capk3s/capk3s/test/k3s/internal/agent"
	"github.com/capk3s/capk3s/test/k3s/internal/config"
	"github.com/capk3s/capk3s/test/k3s/internal/node"
	"github.com/capk3s/capk3s/test/k3s/internal/server"
	"github.com/capk3s/capk3s/test/k3s/internal/version"
)

const usage = `k3s-emulator plays K3s for tests.

Usage:
  k3s server [flags]   run a server
  k3s agent [flags]    run an agent
  k3s --version        print the version it plays
`

func main() {
	logrus.SetFormatter(&logrus.TextFormatter{DisableColors: true, FullTimestamp: true})
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		logrus.Fatalf("Error: %v", err)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		fmt.Print(usage)
		return nil
	}
	switch args[0] {
	case "--version", "-v", "version":
		fmt.Printf("k3s version %s (emulator)\ngo version %s\n", version.Current(), runtime.Version())
		return nil
	case "--help", "-h", "help":
		fmt.Print(usage)
		return nil
	case config.CommandServer, config.CommandAgent, config.CommandNode:
	default:
		return fmt.Errorf("No help topic for '%s'", args[0]) //nolint:staticcheck // K3s' text
	}
	cfg, err := config.Load(args[0], args[1:])
	if err != nil {
		return err
	}
	if cfg.Debug {
		logrus.SetLevel(logrus.DebugLevel)
	}
	switch cfg.Command {
	case config.CommandServer:
		return server.Run(ctx, cfg)
	case config.CommandAgent:
		return runAgent(ctx, cfg)
	default:
		return node.RunBesideServer(ctx, cfg)
	}
}

func runAgent(ctx context.Context, cfg *config.Config) error {
	logrus.Infof("Starting k3s agent %s", version.Current())
	a, err := agent.New(cfg)
	if err != nil {
		return err
	}
	if err := a.Run(ctx, true); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	logrus.Infof("k3s agent is up and running")
	if _, err := daemon.SdNotify(true, daemon.SdNotifyReady); err != nil {
		logrus.Warnf("Failed to notify the service manager: %v", err)
	}
	<-ctx.Done()
	return nil
}

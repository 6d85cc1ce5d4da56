// Package server puts a K3s server together: shared files, supervisor, etcd,
// kube-apiserver, controllers, and the agent inside.
package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/sirupsen/logrus"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/capk3s/capk3s/test/k3s/internal/agent"
	"github.com/capk3s/capk3s/test/k3s/internal/apiserver"
	"github.com/capk3s/capk3s/test/k3s/internal/bootstrap"
	"github.com/capk3s/capk3s/test/k3s/internal/client"
	"github.com/capk3s/capk3s/test/k3s/internal/config"
	"github.com/capk3s/capk3s/test/k3s/internal/controllers"
	"github.com/capk3s/capk3s/test/k3s/internal/datastore"
	"github.com/capk3s/capk3s/test/k3s/internal/etcd"
	"github.com/capk3s/capk3s/test/k3s/internal/passwd"
	"github.com/capk3s/capk3s/test/k3s/internal/pki"
	"github.com/capk3s/capk3s/test/k3s/internal/supervisor"
	"github.com/capk3s/capk3s/test/k3s/internal/token"
	"github.com/capk3s/capk3s/test/k3s/internal/version"
)

// LearnerTickEnv sets how often the etcd leader looks at learners. Real K3s does
// it every 15 seconds; the default here is shorter, so that joins are quick.
const LearnerTickEnv = "K3S_EMULATOR_LEARNER_TICK"

const (
	defaultLearnerTick = 2 * time.Second
	stopTimeout        = 15 * time.Second
)

type server struct {
	cfg        *config.Config
	files      pki.Files
	standalone bool
	external   *datastore.External
	join       *client.Client
	passwords  *passwd.File

	supervisor  *supervisor.Supervisor
	etcd        *etcd.Server
	api         *apiserver.Server
	controllers atomic.Pointer[controllers.Controllers]
}

// Run runs a server until the context ends, or until something ends it: an
// error is fatal, a shutdown request is none.
func Run(ctx context.Context, cfg *config.Config) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s := &server{cfg: cfg, files: pki.NewFiles(cfg.ServerDir())}
	logrus.Infof("Starting k3s %s", version.Current())
	if err := s.prepare(ctx, cancel); err != nil {
		return fmt.Errorf("preparing server: %w", err)
	}
	if err := s.etcd.Start(ctx, s.join); err != nil {
		return fmt.Errorf("starting kubernetes: %w", err)
	}
	go s.runAgent(ctx, cancel)
	if err := s.bringUp(ctx, cancel); err != nil && ctx.Err() == nil {
		return fmt.Errorf("starting kubernetes: %w", err)
	}
	<-ctx.Done()
	if s.api != nil {
		s.api.Wait(stopTimeout)
	}
	s.etcd.Wait(stopTimeout)
	var fatal *fatalError
	if errors.As(context.Cause(ctx), &fatal) {
		return fatal.error
	}
	return nil
}

// fatalError ends the process with an error.
type fatalError struct{ error }

// prepare does what happens before anything runs.
func (s *server) prepare(ctx context.Context, cancel context.CancelCauseFunc) error {
	if s.cfg.Server.ClusterReset {
		return fmt.Errorf("cluster-reset: %w", config.ErrNotEmulated)
	}
	for _, dir := range []string{s.files.CredDir, s.files.EtcdTLSDir} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	if err := s.chooseDatastore(ctx); err != nil {
		return err
	}
	if err := s.loadBootstrap(ctx); err != nil {
		return fmt.Errorf("failed to bootstrap cluster data: %w", err)
	}
	if err := s.generateFiles(); err != nil {
		return fmt.Errorf("failed to generate server dependencies: %w", err)
	}
	if err := s.listen(ctx, cancel); err != nil {
		return fmt.Errorf("failed to start supervisor listener: %w", err)
	}
	return nil
}

// chooseDatastore is K3s' choice. One that is named is used; between etcd and
// SQLite, what was there before wins, and a server URL without a token isn't a
// join.
func (s *server) chooseDatastore(ctx context.Context) error {
	if s.cfg.Server.DatastoreEndpoint != "" {
		var err error
		s.external, err = datastore.Open(ctx, s.cfg.Server, s.cfg.ServerDir())
		return err
	}
	dir := s.cfg.ServerDir()
	wantsEtcd := s.cfg.Server.Control.ClusterInit || (s.cfg.Token != "" && s.cfg.JoinURL != "")
	s.standalone = !etcd.IsInitialized(dir) && !wantsEtcd
	if _, err := os.Stat(etcd.StandaloneDir(dir)); err == nil && !s.standalone && s.cfg.Server.Control.ClusterInit {
		return fmt.Errorf("migrating from SQLite: %w", config.ErrNotEmulated)
	}
	return nil
}

func (s *server) listen(ctx context.Context, cancel context.CancelCauseFunc) error {
	var err error
	if s.supervisor, err = supervisor.New(s.cfg, s.files); err != nil {
		return err
	}
	if err := s.supervisor.Listen(ctx); err != nil {
		return err
	}
	tick, err := learnerTick()
	if err != nil {
		return err
	}
	s.etcd, err = etcd.New(etcd.Options{
		Control:       &s.cfg.Server.Control,
		Files:         s.files,
		Standalone:    s.standalone,
		External:      s.external,
		ExtraArgs:     s.cfg.Server.EtcdArgs,
		ExposeMetrics: s.cfg.Server.ExposeEtcdMetrics,
		LearnerTick:   tick,
		Report: func(ctx context.Context, members []etcd.MemberStatus) {
			if c := s.controllers.Load(); c != nil {
				c.ReportVoters(ctx, members)
			}
		},
		Shutdown: func(err error) {
			logrus.Errorf("Shutdown request received: %v", err)
			cancel(err)
		},
	})
	if err != nil {
		return err
	}
	s.supervisor.Bind(s.etcd)
	return nil
}

func learnerTick() (time.Duration, error) {
	value := os.Getenv(LearnerTickEnv)
	if value == "" {
		return defaultLearnerTick, nil
	}
	tick, err := time.ParseDuration(value)
	if err != nil || tick <= 0 {
		return 0, fmt.Errorf("environment variable %s: %q is not a positive duration", LearnerTickEnv, value)
	}
	return tick, nil
}

// runAgent joins this machine's node to its own server.
func (s *server) runAgent(ctx context.Context, cancel context.CancelCauseFunc) {
	full, err := s.agentToken()
	if err != nil {
		cancel(&fatalError{err})
		return
	}
	local := agent.NewLocal(s.cfg, full)
	if err := local.Run(ctx, !s.cfg.Server.Control.DisableAgent); err != nil && ctx.Err() == nil {
		cancel(&fatalError{err})
	}
}

// agentToken is the full token for agents, so that the agent inside verifies its
// own server like any other.
func (s *server) agentToken() (string, error) {
	bundle, err := os.ReadFile(s.files.ServerCA)
	if err != nil {
		return "", err
	}
	return token.Format(passwd.UserNode, s.passwords.Password(passwd.UserNode), bundle)
}

// bringUp waits for etcd, then starts all that needs it.
func (s *server) bringUp(ctx context.Context, cancel context.CancelCauseFunc) error {
	if err := s.waitForEtcd(ctx); err != nil {
		return err
	}
	if !s.standalone {
		if err := s.saveBootstrap(ctx); err != nil {
			return fmt.Errorf("failed to save bootstrap data: %w", err)
		}
	}
	api, err := apiserver.New(s.cfg, s.files, s.etcd.Access())
	if err != nil {
		return err
	}
	s.api = api
	go func() {
		if err := api.Run(ctx); err != nil {
			cancel(&fatalError{err})
		}
	}()
	if err := api.WaitReady(ctx); err != nil {
		return err
	}
	if err := s.supervisor.SetAPIServer(api.URL); err != nil {
		return err
	}
	if err := s.startControllers(ctx, api.URL); err != nil {
		return err
	}
	if err := s.writeKubeconfig(); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	if err := supervisor.WriteTokens(s.cfg, s.files.ServerCA, s.passwords); err != nil {
		return err
	}
	logrus.Infof("k3s is up and running")
	if _, err := daemon.SdNotify(true, daemon.SdNotifyReady); err != nil {
		logrus.Warnf("Failed to notify the service manager: %v", err)
	}
	return nil
}

func (s *server) waitForEtcd(ctx context.Context) error {
	for {
		err := s.etcd.Test(ctx)
		if err == nil {
			logrus.Infof("Connected to etcd cluster")
			return nil
		}
		logrus.Infof("Failed to test etcd connection: %v", err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

func (s *server) saveBootstrap(ctx context.Context) error {
	data, err := bootstrap.FromDisk(s.files)
	if err != nil {
		return err
	}
	return bootstrap.Save(ctx, s.etcd.Client(), s.passwords.Password(passwd.UserServer), data)
}

func (s *server) startControllers(ctx context.Context, url string) error {
	cert, key := s.files.Leaf("client-supervisor")
	kube, err := kubernetes.NewForConfig(&rest.Config{
		Host:            url,
		TLSClientConfig: rest.TLSClientConfig{CAFile: s.files.ServerCA, CertFile: cert, KeyFile: key},
		QPS:             50,
		Burst:           100,
	})
	if err != nil {
		return err
	}
	all, err := controllers.New(kube, s.cfg, s.etcd)
	if err != nil {
		return err
	}
	all.Start(ctx)
	s.controllers.Store(all)
	s.supervisor.SetReady(kube)
	return nil
}

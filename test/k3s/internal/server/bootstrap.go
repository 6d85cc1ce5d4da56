package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/sirupsen/logrus"

	"github.com/capk3s/capk3s/test/k3s/internal/bootstrap"
	"github.com/capk3s/capk3s/test/k3s/internal/client"
	"github.com/capk3s/capk3s/test/k3s/internal/config"
	"github.com/capk3s/capk3s/test/k3s/internal/etcd"
	"github.com/capk3s/capk3s/test/k3s/internal/passwd"
	"github.com/capk3s/capk3s/test/k3s/internal/token"
)

// loadBootstrap brings the shared files of the cluster to disk: from the server
// that is joined, from what this server knew when it last ran, or from the
// datastore outside.
func (s *server) loadBootstrap(ctx context.Context) error {
	if s.standalone {
		return nil
	}
	if s.external != nil {
		return s.sharedBootstrap(ctx)
	}
	if etcd.IsInitialized(s.cfg.ServerDir()) {
		logrus.Infof("Managed etcd cluster bootstrap already complete and initialized")
		return s.reconcile()
	}
	if s.cfg.JoinURL == "" {
		logrus.Infof("Managed etcd cluster initializing")
		return nil
	}
	if err := s.checkJoin(); err != nil {
		return err
	}
	logrus.Infof("Managed etcd cluster not yet initialized")
	data, err := s.remoteBootstrap()
	if err != nil {
		return err
	}
	return reconcileFiles(data, s)
}

// sharedBootstrap brings the files from the datastore that all servers share; a
// server URL counts for nothing. The first server finds none, and makes them.
func (s *server) sharedBootstrap(ctx context.Context) error {
	password, err := s.ownPassword()
	if err != nil || password == "" {
		return err
	}
	data, err := bootstrap.Claim(ctx, s.external.Client, password)
	if err != nil || data == nil {
		return err
	}
	return reconcileFiles(data, s)
}

// checkJoin validates the token's form and CA hash, and the settings that must
// be the same. The password is checked when it is used.
func (s *server) checkJoin() error {
	const prefix = "failed to check if bootstrap data has been initialized: "
	if s.cfg.Token == "" {
		return errors.New(prefix + "token is required to join a cluster")
	}
	join, err := s.joinClient()
	if err != nil {
		return fmt.Errorf(prefix+"failed to validate token: %w", err)
	}
	s.join = join
	if err := compareConfig(s.cfg); err != nil {
		return fmt.Errorf("failed to validate server configuration: %w", err)
	}
	return nil
}

func (s *server) joinClient() (*client.Client, error) {
	opts := client.Options{User: passwd.UserServer}
	if pinned, err := os.ReadFile(s.files.ServerCA); err == nil {
		opts.CACerts = pinned
	}
	return client.New(s.cfg.JoinURL, s.cfg.Token, opts)
}

func (s *server) remoteBootstrap() (bootstrap.Data, error) {
	raw, err := s.join.Get("/v1-k3s/server-bootstrap")
	if err != nil {
		return nil, err
	}
	return bootstrap.Parse(raw)
}

// reconcile compares the files of a server that ran before with the cluster: the
// server that it joins, if that one answers and takes the token, else its own
// store.
func (s *server) reconcile() error {
	if s.cfg.JoinURL != "" && s.cfg.Token != "" {
		data, err := s.reachRemote()
		if err == nil {
			return reconcileFiles(data, s)
		}
		logrus.Warnf("Unable to reconcile with remote datastore: %v", err)
	}
	password, err := s.ownPassword()
	if err != nil {
		return err
	}
	entries, err := bootstrap.ReadOffline(filepath.Join(etcd.Dir(s.cfg.ServerDir()), "member", "snap", "db"))
	if err != nil {
		return fmt.Errorf("failed to reconcile with local datastore: %w", err)
	}
	data, err := bootstrap.Open(entries, password)
	if err != nil {
		return fmt.Errorf("failed to reconcile with local datastore: %w", err)
	}
	if data == nil {
		return nil
	}
	return reconcileFiles(data, s)
}

func (s *server) reachRemote() (bootstrap.Data, error) {
	join, err := s.joinClient()
	if err != nil {
		return nil, err
	}
	s.join = join
	return s.remoteBootstrap()
}

// reconcileFiles is where K3s ends at once, without further words, if somebody
// changed a shared file.
func reconcileFiles(data bootstrap.Data, s *server) error {
	err := data.Reconcile(s.files)
	var newer *bootstrap.NewerError
	if errors.As(err, &newer) {
		logrus.Fatal(newer.Error())
	}
	return err
}

// ownPassword is the server password: from the configuration, or from the token
// file of an earlier run; empty if there is neither.
func (s *server) ownPassword() (string, error) {
	if s.cfg.Token != "" {
		return token.Normalize(s.cfg.Token)
	}
	password, err := token.ReadFile(filepath.Join(s.cfg.ServerDir(), "token"))
	if os.IsNotExist(err) {
		return "", nil
	}
	return password, err
}

// preparePasswords writes the password file, with a random server password if
// there is none at all, and returns it.
func (s *server) preparePasswords() (*passwd.File, error) {
	file, err := passwd.Read(s.files.PasswdFile)
	if err != nil {
		return nil, err
	}
	password, err := s.ownPassword()
	if err != nil {
		return nil, err
	}
	if password == "" {
		password = file.Password(passwd.UserServer)
	}
	if password == "" {
		password = config.RandomHex(16)
	}
	file.Set(passwd.UserServer, password)
	file.Set(passwd.UserNode, password)
	if s.cfg.AgentToken != "" {
		agent, err := token.Normalize(s.cfg.AgentToken)
		if err != nil {
			return nil, err
		}
		file.Set(passwd.UserNode, agent)
	}
	return file, file.Write(s.files.PasswdFile)
}

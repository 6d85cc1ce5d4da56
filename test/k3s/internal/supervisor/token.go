package supervisor

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/capk3s/capk3s/test/k3s/internal/bootstrap"
	"github.com/capk3s/capk3s/test/k3s/internal/config"
	"github.com/capk3s/capk3s/test/k3s/internal/passwd"
	"github.com/capk3s/capk3s/test/k3s/internal/token"
)

// storedBootstrap reads the shared files out of etcd with the password that the
// client showed; nil if it showed none.
func (s *Supervisor) storedBootstrap(r *http.Request) (bootstrap.Data, error) {
	_, password, ok := r.BasicAuth()
	if !ok {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(r.Context(), time.Second)
	defer cancel()
	return bootstrap.Load(ctx, s.etcd.Client(), password)
}

// rotateToken changes the server token in the cluster and on this server's
// disk. The passwords in memory stay: K3s reads them at start only.
func (s *Supervisor) rotateToken(w http.ResponseWriter, r *http.Request, _ *identity) {
	if r.Method != http.MethodPut {
		sendError(w, r, http.StatusMethodNotAllowed, errMethod)
		return
	}
	var request struct {
		NewToken *string `json:"newToken"`
	}
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		sendError(w, r, http.StatusBadRequest, err)
		return
	}
	// K3s doesn't check for a missing token either: the connection is dropped.
	if err := s.changeToken(r.Context(), *request.NewToken); err != nil {
		sendError(w, r, http.StatusInternalServerError, err)
	}
}

func (s *Supervisor) changeToken(ctx context.Context, value string) error {
	password := config.RandomHex(16)
	if value != "" {
		var err error
		if password, err = token.Normalize(value); err != nil {
			return err
		}
	}
	file, err := passwd.Read(s.files.PasswdFile)
	if err != nil {
		return err
	}
	old := file.Password(passwd.UserServer)
	file.Set(passwd.UserServer, password)
	if s.cfg.AgentToken == "" && file.Password(passwd.UserNode) == old {
		file.Set(passwd.UserNode, password)
	}
	if err := file.Write(s.files.PasswdFile); err != nil {
		return err
	}
	if err := WriteTokens(s.cfg, s.files.ServerCA, file); err != nil {
		return err
	}
	data, err := bootstrap.FromDisk(s.files)
	if err != nil {
		return err
	}
	return bootstrap.Rotate(ctx, s.etcd.Client(), old, password, data)
}

// WriteTokens writes the token files of a server: token, the link node-token,
// and agent-token, which is a link too unless agents have their own.
func WriteTokens(cfg *config.Config, serverCA string, passwords *passwd.File) error {
	bundle, err := os.ReadFile(serverCA)
	if err != nil {
		return err
	}
	dir := cfg.ServerDir()
	if err := writeToken(filepath.Join(dir, "token"), passwd.UserServer, passwords, bundle); err != nil {
		return err
	}
	if err := link(filepath.Join(dir, "node-token")); err != nil {
		return err
	}
	if cfg.AgentToken == "" {
		return link(filepath.Join(dir, "agent-token"))
	}
	return writeToken(filepath.Join(dir, "agent-token"), passwd.UserNode, passwords, bundle)
}

func writeToken(path, user string, passwords *passwd.File, bundle []byte) error {
	content, err := token.Format(user, passwords.Password(user), bundle)
	if err != nil {
		return fmt.Errorf("format token file %s: %w", path, err)
	}
	if err := os.RemoveAll(path); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(content+"\n"), 0o600)
}

// link makes a symbolic link to the token file beside it.
func link(path string) error {
	if err := os.RemoveAll(path); err != nil {
		return err
	}
	return os.Symlink(filepath.Join(filepath.Dir(path), "token"), path)
}

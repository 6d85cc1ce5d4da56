//go:build e2e

package e2e

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/util/cert"

	"github.com/capk3s/capk3s/test/world"
)

// postgres is a database server in the world, of Debian's package.
type postgres struct {
	// endpoint is its data source name, with the password.
	endpoint string
	// ca is the CA of its certificate, in PEM.
	ca []byte
}

// ordinary starts a program as an ordinary user, since PostgreSQL won't run as root.
var ordinary = []string{"--user", "--map-user=1000", "--map-group=1000"}

// startPostgres runs PostgreSQL on the world's bridge, with a password and TLS only. It ends with the test.
func startPostgres(t *testing.T) postgres {
	t.Helper()
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	require.NoError(t, err)
	require.NotEmpty(t, found, "PostgreSQL isn't installed: make deps")
	programs, dir := filepath.Dir(found[0]), t.TempDir()
	data, passwordFile := filepath.Join(dir, "data"), filepath.Join(dir, "password")
	require.NoError(t, os.WriteFile(passwordFile, []byte("s3cr3t-of-db\n"), 0o600))
	out, err := exec.Command("unshare", append(ordinary, filepath.Join(programs, "initdb"), "--pgdata", data, "--username", "k3s",
		"--pwfile", passwordFile, "--auth", "scram-sha-256", "--no-sync", "--encoding", "UTF8", "--locale", "C")...).CombinedOutput()
	require.NoError(t, err, string(out))

	address := world.Subnet.Addr().Next().String()
	database := postgres{
		endpoint: fmt.Sprintf("postgres://k3s:s3cr3t-of-db@%s/k3s", net.JoinHostPort(address, "5432")),
		ca:       writeServerCertificate(t, data, address),
	}
	hba := "hostssl all all 0.0.0.0/0 scram-sha-256\n"
	require.NoError(t, os.WriteFile(filepath.Join(data, "pg_hba.conf"), []byte(hba), 0o600))
	command := append(ordinary, filepath.Join(programs, "postgres"), "-D", data)
	for _, setting := range []string{
		"listen_addresses=" + address, "port=5432", "unix_socket_directories=", "ssl=on", "max_connections=200", "fsync=off", "shared_buffers=32MB",
	} {
		command = append(command, "-c", setting)
	}
	log, err := os.Create(filepath.Join(dir, "postgres.log"))
	require.NoError(t, err)
	defer log.Close()
	cmd := exec.Command("unshare", command...)
	cmd.Stdout, cmd.Stderr = log, log
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGQUIT) // at once
		_ = cmd.Wait()
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("log of PostgreSQL:\n%s", text)
		}
	})
	return database
}

// writeServerCertificate writes server.crt and server.key; it returns the certificate with its CA.
func writeServerCertificate(t *testing.T, dir, address string) []byte {
	t.Helper()
	certificate, key, err := cert.GenerateSelfSignedCertKey("database", []net.IP{net.ParseIP(address)}, nil)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "server.crt"), certificate, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "server.key"), key, 0o600))
	return certificate
}

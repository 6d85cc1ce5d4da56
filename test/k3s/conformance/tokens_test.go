//go:build conformance

package conformance

import (
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/capk3s/capk3s/test/k3s/internal/token"
)

// otherToken is what a server says whose token doesn't open the cluster's data.
const otherToken = fatal + "failed to reconcile with local datastore: bootstrap data already found and encrypted with different token"

// TestTokens is what sections 3 and 5 say of seeded CAs and of tokens that
// change, on one cluster.
func TestTokens(t *testing.T) {
	besideOthers(t)
	s1, s2, s3 := newMachine(t, "t", 11), newMachine(t, "t", 12), newMachine(t, "t", 13)
	seed := newSeed(t)
	seed.write(t, s1)
	full := "K10" + seed.rootHash + "::server:" + password
	s1.configure(t, settings{"cluster-init": true, "token": full})
	p1 := s1.start(t, "server")
	p1.waitUp(t)
	t.Run("seeded", func(t *testing.T) { seededServer(t, s1, seed) })

	t.Run("other token", func(t *testing.T) {
		p1.stop(t)
		s1.configure(t, settings{"cluster-init": true, "token": "other"})
		p := s1.start(t, "server")
		assert.Equal(t, 1, p.waitExit(t, time.Minute))
		assert.Contains(t, p.message(), otherToken)
	})
	t.Run("newer file", func(t *testing.T) { newerFile(t, s1) })
	t.Run("no token", func(t *testing.T) {
		s1.configure(t, settings{"cluster-init": true})
		p1 = s1.start(t, "server")
		p1.waitUp(t)
		assert.Equal(t, 200, asServer.get(t, s1.url("/db/info")).code)
	})
	t.Run("rotate", func(t *testing.T) { rotate(t, s1) })
	t.Run("after rotation", func(t *testing.T) {
		p1.stop(t)
		s1.configure(t, settings{"cluster-init": true, "token": password})
		p := s1.start(t, "server")
		assert.Equal(t, 1, p.waitExit(t, time.Minute))
		assert.Contains(t, p.message(), otherToken)
		s1.configure(t, settings{"cluster-init": true, "token": rotated})
		p1 = s1.start(t, "server")
		p1.waitUp(t)
		assert.Equal(t, 200, caller{user: "server", password: rotated}.get(t, s1.url("/db/info")).code)
		assert.Equal(t, 401, asServer.get(t, s1.url("/db/info")).code)
	})

	t.Run("join", func(t *testing.T) { joinSeeded(t, s1, s2, s3, seed) })
	t.Run("joined server", func(t *testing.T) { joinedServerTokens(t, s1, s2, p1) })
}

// rotated is the token that the cluster gets.
const rotated = "def"

// seededServer: the files that were there are used as they are, and the hash is
// that of the root.
func seededServer(t *testing.T, m *machine, seed *seed) {
	for name, content := range seed.files {
		assert.Equal(t, string(content), m.read(t, m.server("tls", name)), name)
	}
	assert.Equal(t, "K10"+seed.rootHash+"::server:"+password+"\n", m.read(t, m.server("token")))
	served, err := token.ParseBundle([]byte(anonymous.get(t, m.url("/cacerts")).body))
	require.NoError(t, err)
	assert.Len(t, served, 2)

	conn, err := tls.Dial("tcp", m.ip+":6443", &tls.Config{InsecureSkipVerify: true})
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	chain := conn.ConnectionState().PeerCertificates
	require.Len(t, chain, 3)
	assert.Equal(t, "seed-server-ca", chain[1].Subject.CommonName)
	assert.Equal(t, "seed-root", chain[2].Subject.CommonName)

	for _, name := range []string{"client-ca.nochain.crt", "server-ca.nochain.crt"} {
		certs, err := token.ParseBundle([]byte(m.read(t, m.server("tls", name))))
		require.NoError(t, err)
		assert.Len(t, certs, 1, name)
	}
	assert.FileExists(t, m.server("tls", "service.key"), "what wasn't seeded is made")
}

// newerFile: a shared file that was changed after the cluster stored it is
// fatal.
func newerFile(t *testing.T, m *machine) {
	path := m.server("tls", "request-header-ca.crt")
	old := m.read(t, path)
	later := time.Now().Add(time.Minute)
	require.NoError(t, os.WriteFile(path, []byte(old+"\n"), 0o600))
	require.NoError(t, os.Chtimes(path, later, later))
	m.configure(t, settings{"cluster-init": true, "token": password})
	p := m.start(t, "server")
	assert.Equal(t, 1, p.waitExit(t, time.Minute))
	assert.Contains(t, p.message(), "/var/lib/rancher/k3s/server/tls/request-header-ca.crt newer than datastore and could cause a cluster outage."+
		" Remove the file(s) from disk and restart to be recreated from datastore.")
	require.NoError(t, os.WriteFile(path, []byte(old), 0o600))
}

// rotate: the cluster's data and the files are for the new token at once, but
// the running server still takes the old one only.
func rotate(t *testing.T, m *machine) {
	got := asServer.do(t, "PUT", m.url("/v1-k3s/token"), `{"newToken":"`+rotated+`"}`)
	require.Equal(t, 200, got.code, got.body)
	assert.Contains(t, m.read(t, m.server("cred", "passwd")), rotated+",server,server,k3s:server\n")
	assert.Contains(t, m.read(t, m.server("token")), "::server:"+rotated+"\n")
	assert.Equal(t, 200, asServer.get(t, m.url("/db/info")).code)
	assert.Equal(t, 401, caller{user: "server", password: rotated}.get(t, m.url("/db/info")).code)
	digest := sha256.Sum256([]byte(rotated))
	key := "/bootstrap/" + hex.EncodeToString(digest[:])[:12]
	stored, err := m.etcd(t).Get(withTimeout(t), key)
	require.NoError(t, err)
	assert.Len(t, stored.Kvs, 1, key)
}

// joinSeeded: the hash of the root is right for a joining server, that of the
// bundle's file isn't.
func joinSeeded(t *testing.T, s1, s2, s3 *machine, seed *seed) {
	s2.configure(t, settings{"server": s1.url(""), "token": "K10" + seed.rootHash + "::server:" + rotated})
	p2 := s2.start(t, "server")
	p2.waitUp(t)
	sameFiles(t, s1, s2)
	p2.stop(t)

	digest := sha256.Sum256(seed.files["server-ca.crt"])
	fileHash := hex.EncodeToString(digest[:])
	s3.configure(t, settings{"server": s1.url(""), "token": "K10" + fileHash + "::server:" + rotated})
	p3 := s3.start(t, "server")
	assert.Equal(t, 1, p3.waitExit(t, time.Minute))
	assert.Contains(t, p3.message(), checked+"token CA hash does not match the Cluster CA certificate hash: "+fileHash+" != "+seed.rootHash)
}

// joinedServerTokens: restarts of a server that joined another.
func joinedServerTokens(t *testing.T, s1, s2 *machine, p1 *process) {
	const warning = "Unable to reconcile with remote datastore: "
	unreachable := "https://10.99.0.99:6443"
	for _, row := range []struct{ name, server, warning string }{
		{"remote up", s1.url(""), warning + "not authorized"},
		{"remote unreachable", unreachable, warning},
	} {
		t.Run(row.name, func(t *testing.T) {
			s2.configure(t, settings{"server": row.server, "token": "other"})
			p := s2.start(t, "server")
			assert.Equal(t, 1, p.waitExit(t, time.Minute))
			assert.Contains(t, p.message(), row.warning)
			assert.Contains(t, p.message(), otherToken)
		})
	}
	t.Run("right token, remote unreachable", func(t *testing.T) {
		// The first server has been alone without a quorum, and may have ended.
		p1.kill()
		s1.start(t, "server")
		s2.configure(t, settings{"server": unreachable, "token": rotated})
		p := s2.start(t, "server")
		p.waitUp(t)
		assert.Contains(t, p.message(), warning)
	})
}

//go:build conformance

package conformance

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/capk3s/capk3s/test/k3s/internal/bootstrap"
	"github.com/capk3s/capk3s/test/k3s/internal/token"
)

// password is the token of most clusters here.
const password = "abc"

// The callers of the table of endpoints.
var (
	anonymous = caller{}
	asServer  = caller{user: "server", password: password}
	asNode    = caller{user: "node", password: password}
	asWrong   = caller{user: "server", password: "wrong"}
)

// TestEndpoints is section 2 of the measurements, on one fresh server.
func TestEndpoints(t *testing.T) {
	besideOthers(t)
	s1 := newMachine(t, "p", 31)
	s1.configure(t, settings{"cluster-init": true, "token": password, "tls-san": []string{"lb.test"}})
	p := s1.start(t, "server")
	t.Run("start", func(t *testing.T) { startSequence(t, s1) })
	p.waitUp(t)

	t.Run("codes", func(t *testing.T) { endpointCodes(t, s1) })
	t.Run("certificates", func(t *testing.T) { certificateRoles(t, s1) })
	t.Run("bodies", func(t *testing.T) { endpointBodies(t, s1) })
	t.Run("loopback", func(t *testing.T) { loopback(t, s1) })
	t.Run("bootstrap", func(t *testing.T) { bootstrapData(t, s1) })
	t.Run("files", func(t *testing.T) { serverFiles(t, s1) })
	t.Run("names", func(t *testing.T) { serverNames(t, s1) })
	t.Run("config", func(t *testing.T) { servedConfig(t, s1) })
	t.Run("etcd", func(t *testing.T) { etcdListeners(t, s1) })
}

// startSequence watches a server come up, from its loopback: what answers
// first, and with what.
func startSequence(t *testing.T, m *machine) {
	probes := []struct {
		path string
		who  caller
		// before are answers that may come before the last one.
		before []int
		last   int
	}{
		{"/ping", anonymous, []int{503}, 200},
		{"/cacerts", anonymous, []int{503}, 200},
		{"/v1-k3s/server-bootstrap", asServer, []int{503}, 200},
		{"/v1-k3s/config", asNode, []int{503}, 200},
		{"/db/info", asServer, []int{503, 500}, 200},
		{"/readyz", anonymous, []int{503}, 401},
		{"/v1-k3s/readyz", asNode, []int{503}, 200},
	}
	// reached has the rounds. In each, what comes up last is asked first: what it needs must have come up in the same
	// round at the latest.
	reached := map[string]int{}
	deadline := time.Now().Add(2 * time.Minute)
	for round := 1; len(reached) < len(probes); round++ {
		require.True(t, time.Now().Before(deadline), "only these came up: %v", reached)
		for _, probe := range slices.Backward(probes) {
			if _, done := reached[probe.path]; done {
				continue
			}
			probe.who.from = m
			got, err := probe.who.request(http.MethodGet, local(probe.path), nil)
			if err != nil {
				continue
			}
			if got.code == probe.last {
				reached[probe.path] = round
				continue
			}
			require.Contains(t, probe.before, got.code, "%s: %s", probe.path, got.body)
			if got.code == 500 {
				assert.Contains(t, got.body, "failed to get etcd MemberList")
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	assert.GreaterOrEqual(t, reached["/db/info"], reached["/ping"], "etcd is up before the supervisor answers")
	assert.GreaterOrEqual(t, reached["/readyz"], reached["/db/info"], "kube-apiserver is up before etcd")
	assert.GreaterOrEqual(t, reached["/v1-k3s/readyz"], reached["/readyz"], "K3s is ready before kube-apiserver")
}

// endpointCodes is the table of HTTP statuses by path and caller. A zero wasn't
// measured.
func endpointCodes(t *testing.T, m *machine) {
	for _, row := range []struct {
		method, path                   string
		anonymous, server, node, wrong int
	}{
		{"GET", "/ping", 200, 200, 200, 200},
		{"POST", "/ping", 200, 0, 0, 0},
		{"GET", "/cacerts", 200, 200, 200, 200},
		{"GET", "/db/info", 403, 200, 403, 401},
		{"POST", "/db/info", 0, 405, 0, 0},
		{"GET", "/v1-k3s/server-bootstrap", 403, 200, 403, 401},
		{"POST", "/v1-k3s/server-bootstrap", 403, 200, 403, 401},
		{"GET", "/v1-k3s/config", 403, 403, 200, 401},
		{"GET", "/v1-k3s/apiservers", 403, 403, 200, 401},
		{"GET", "/v1-k3s/readyz", 403, 403, 200, 401},
		{"GET", "/v1-k3s/encrypt/status", 403, 200, 403, 401},
		{"GET", "/v1-k3s/token", 403, 405, 403, 401},
		{"GET", "/v1-k3s/unknown", 401, 401, 401, 401},
		{"GET", "/healthz", 401, 401, 401, 401},
		{"GET", "/readyz", 401, 401, 401, 401},
		{"GET", "/version", 401, 401, 401, 401},
		{"GET", "/api", 401, 401, 401, 401},
		{"GET", "/metrics", 401, 401, 401, 401},
	} {
		for name, column := range map[string]struct {
			who  caller
			want int
		}{
			"anonymous": {anonymous, row.anonymous}, "server": {asServer, row.server},
			"node": {asNode, row.node}, "wrong": {asWrong, row.wrong},
		} {
			if column.want == 0 {
				continue
			}
			got := column.who.do(t, row.method, m.url(row.path), "")
			assert.Equal(t, column.want, got.code, "%s %s as %s: %s", row.method, row.path, name, got.body)
		}
	}
	unknown := caller{bearer: "abcdef.0123456789abcdef"}
	assert.Equal(t, 401, unknown.get(t, m.url("/v1-k3s/config")).code, "unknown bootstrap token")
}

// certificateRoles shows what certificates of the client CA are good for,
// without any token.
func certificateRoles(t *testing.T, m *machine) {
	for _, row := range []struct {
		organization                           string
		info, bootstrap, encrypt, config, kube int
	}{
		{"k3s:server", 200, 200, 200, 403, 200},
		{"system:masters", 403, 403, 403, 403, 200},
		{"k3s:agent", 403, 403, 403, 200, 200},
	} {
		who := caller{cert: m.mint(t, "someone", row.organization)}
		for path, want := range map[string]int{
			"/db/info": row.info, "/v1-k3s/server-bootstrap": row.bootstrap, "/v1-k3s/encrypt/status": row.encrypt,
			"/v1-k3s/config": row.config, "/version": row.kube, "/readyz": row.kube,
		} {
			got := who.get(t, m.url(path))
			assert.Equal(t, want, got.code, "%s with O=%s: %s", path, row.organization, got.body)
		}
	}
	agent := caller{cert: m.mint(t, "someone", "k3s:agent")}
	assert.Equal(t, 200, agent.get(t, m.url("/v1-k3s/readyz")).code)
	stranger := caller{cert: m.mintWith(t, "request-header-ca", "someone", "k3s:server")}
	assert.Equal(t, 401, stranger.get(t, m.url("/db/info")).code, "certificate of another CA")
}

func endpointBodies(t *testing.T, m *machine) {
	ping := anonymous.get(t, m.url("/ping"))
	assert.Equal(t, "pong", ping.body)
	assert.Equal(t, "text/plain; charset=utf-8", ping.header.Get("Content-Type"))

	cacerts := anonymous.get(t, m.url("/cacerts"))
	assert.Equal(t, m.read(t, m.server("tls", "server-ca.crt")), cacerts.body)
	assert.True(t, strings.HasPrefix(cacerts.header.Get("Content-Type"), "text/plain"))

	for _, row := range []struct {
		got             answer
		code            float64
		message, reason string
	}{
		{anonymous.get(t, m.url("/db/info")), 403, "forbidden", "Forbidden"},
		{asWrong.get(t, m.url("/db/info")), 401, "not authorized", "Unauthorized"},
		{asServer.do(t, "POST", m.url("/db/info"), ""), 405, "the server does not allow this method on the requested resource", "MethodNotAllowed"},
	} {
		status := row.got.status(t)
		assert.Equal(t, "Status", status["kind"])
		assert.Equal(t, "Failure", status["status"])
		assert.Equal(t, row.code, status["code"])
		assert.Equal(t, row.message, status["message"])
		assert.Equal(t, row.reason, status["reason"])
		assert.NotContains(t, status, "apiVersion")
		assert.Equal(t, map[string]any{}, status["metadata"])
	}
	method := asServer.do(t, "POST", m.url("/db/info"), "").status(t)
	causes := method["details"].(map[string]any)["causes"].([]any)
	assert.Equal(t, "method not allowed", causes[0].(map[string]any)["message"])

	kube := anonymous.get(t, m.url("/healthz")).status(t)
	assert.Equal(t, "v1", kube["apiVersion"])
	assert.Equal(t, "Unauthorized", kube["message"])

	assert.JSONEq(t, `{"stage":"","activekey":""}`, asServer.get(t, m.url("/v1-k3s/encrypt/status")).body)
	assert.JSONEq(t, `["`+m.ip+`:6443"]`, asNode.get(t, m.url("/v1-k3s/apiservers")).body)

	info := asServer.get(t, m.url("/db/info"))
	assert.True(t, strings.HasSuffix(info.body, "]}\n"), info.body)
	members, err := m.members(password)
	require.NoError(t, err)
	require.Len(t, members.Members, 1)
	name := m.read(t, m.server("db", "etcd", "name"))
	assert.Regexp(t, `^`+m.name+`-[0-9a-f]{8}$`, name)
	want := fmt.Sprintf(`{"members":[{"ID":%d,"name":%q,"peerURLs":["https://%s:2380"],"clientURLs":["https://%s:2379"]}]}`,
		members.Members[0].ID, name, m.ip, m.ip)
	assert.Equal(t, want, strings.TrimSpace(info.body))
}

// loopback: only 127/8 opens /db/info, whatever credentials are shown, and it
// opens nothing else.
func loopback(t *testing.T, m *machine) {
	for _, row := range []struct {
		who  caller
		url  string
		want int
	}{
		{anonymous, local("/db/info"), 200},
		{asWrong, local("/db/info"), 200},
		{anonymous, local("/v1-k3s/server-bootstrap"), 403},
		{anonymous, local("/v1-k3s/config"), 403},
		{anonymous, m.url("/db/info"), 403},
	} {
		row.who.from = m
		assert.Equal(t, row.want, row.who.get(t, row.url).code, "%s as %q on the server itself", row.url, row.who.user)
	}
}

// bootstrapData: what a joining server gets, and where it lies in etcd.
func bootstrapData(t *testing.T, m *machine) {
	got := asServer.get(t, m.url("/v1-k3s/server-bootstrap"))
	assert.Equal(t, "application/json", got.header.Get("Content-Type"))
	var files map[string]struct{ Timestamp, Content string }
	require.NoError(t, json.Unmarshal([]byte(got.body), &files))
	assert.Equal(t, []string{
		"ClientCA", "ClientCAKey", "ETCDPeerCA", "ETCDPeerCAKey", "ETCDServerCA", "ETCDServerCAKey", "IPSECKey",
		"PasswdFile", "RequestHeaderCA", "RequestHeaderCAKey", "ServerCA", "ServerCAKey", "ServiceKey",
	}, slices.Sorted(maps.Keys(files)))
	content, err := base64.StdEncoding.DecodeString(files["ServerCA"].Content)
	require.NoError(t, err)
	assert.Equal(t, m.read(t, m.server("tls", "server-ca.crt")), string(content))
	_, err = time.Parse(time.RFC3339, files["ServerCA"].Timestamp)
	assert.NoError(t, err)

	stored, err := m.etcd(t).Get(withTimeout(t), "/bootstrap/ba7816bf8f01")
	require.NoError(t, err)
	require.Len(t, stored.Kvs, 1, "the key is named after the first 12 hex digits of the token's sha256")
	plain, err := bootstrap.Decrypt(password, stored.Kvs[0].Value)
	require.NoError(t, err)
	data, err := bootstrap.Parse(plain)
	require.NoError(t, err)
	assert.Equal(t, content, data["ServerCA"].Content)
}

func serverFiles(t *testing.T, m *machine) {
	bundle, err := os.ReadFile(m.server("tls", "server-ca.crt"))
	require.NoError(t, err)
	want, err := token.Format("server", password, bundle)
	require.NoError(t, err)
	assert.Equal(t, want+"\n", m.read(t, m.server("token")))
	for _, link := range []string{"node-token", "agent-token"} {
		target, err := os.Readlink(m.server(link))
		require.NoError(t, err)
		assert.Equal(t, "/var/lib/rancher/k3s/server/token", target, link)
	}
	certs, err := token.ParseBundle(bundle)
	require.NoError(t, err)
	assert.Len(t, certs, 1, "a CA that K3s makes itself has no chain")

	passwords := m.read(t, m.server("cred", "passwd"))
	assert.Contains(t, passwords, password+",server,server,k3s:server\n")
	assert.Contains(t, passwords, password+",node,node,k3s:agent\n")
}

// serverNames: the supervisor's certificate is good for its own names, and for
// those that were asked for.
func serverNames(t *testing.T, m *machine) {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(m.read(t, m.server("tls", "server-ca.crt"))))
	for _, name := range []string{m.ip, "127.0.0.1", "localhost", m.name, "lb.test", "kubernetes", "kubernetes.default.svc", "10.43.0.1"} {
		_, err := caller{roots: roots, serverName: name}.request("GET", m.url("/ping"), nil)
		assert.NoError(t, err, name)
	}
	_, err := caller{roots: roots, serverName: "other.test"}.request("GET", m.url("/ping"), nil)
	assert.ErrorContains(t, err, "x509: certificate is valid for")
}

func servedConfig(t *testing.T, m *machine) {
	var config map[string]any
	require.NoError(t, json.Unmarshal([]byte(asNode.get(t, m.url("/v1-k3s/config")).body), &config))
	for key, want := range map[string]any{
		"ClusterDomain": "cluster.local", "ClusterDNS": "10.43.0.10", "DisableCCM": true, "DisableHelmController": true,
		"DisableNPC": true, "EncryptSecrets": false, "EncryptProvider": "aescbc", "FlannelBackend": "none",
		"EgressSelectorMode": "agent", "SupervisorMetrics": false, "EmbeddedRegistry": false,
		"HTTPSPort": 6443.0, "SupervisorPort": 6443.0, "APIServerPort": 6444.0, "AdvertisePort": 6443.0,
		"AdvertiseIP": m.ip, "ServerNodeName": m.name, "ClusterInit": true, "JoinURL": "", "DisableAgent": true,
		"DataDir": "/var/lib/rancher/k3s/server", "PrivateIP": m.ip, "SANSecurity": true,
	} {
		assert.Equal(t, want, config[key], key)
	}
	assert.Equal(t, map[string]any{"IP": "10.42.0.0", "Mask": "//8AAA=="}, config["ClusterIPRange"])
	assert.Equal(t, map[string]any{"Base": 30000.0, "Size": 2768.0}, config["ServiceNodePortRange"])
	assert.Contains(t, config["SANs"], "lb.test")
	assert.NotEmpty(t, config["IPSECPSK"])
}

// etcdListeners: health without TLS on the loopback, and nothing without a
// client certificate on 2379.
func etcdListeners(t *testing.T, m *machine) {
	here := caller{from: m}
	health := here.get(t, "http://127.0.0.1:2381/health")
	assert.Equal(t, 200, health.code)
	assert.JSONEq(t, `{"health":"true","reason":""}`, health.body)
	_, err := anonymous.request("GET", "https://"+m.ip+":2379/health", nil)
	assert.Error(t, err)
	assert.ErrorContains(t, withoutCertificate(t, m, "127.0.0.1:2382"), "certificate required")
}

// withoutCertificate says how a listener on a machine ends a connection without
// a client certificate. Nothing is written after the handshake: the answer to
// data on a closed connection could overtake the alert.
func withoutCertificate(t *testing.T, m *machine, address string) error {
	t.Helper()
	plain, err := dialOn(t.Context(), m, "tcp", address)
	require.NoError(t, err)
	defer func() { _ = plain.Close() }()
	require.NoError(t, plain.SetDeadline(time.Now().Add(15*time.Second)))
	conn := tls.Client(plain, &tls.Config{InsecureSkipVerify: true})
	if err := conn.Handshake(); err != nil {
		return err
	}
	_, err = conn.Read(make([]byte, 1))
	return err
}

package bootdata

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/util/cert"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
	"github.com/capk3s/capk3s/test/testenv/computer"
)

// asMirror makes the test's own program a mirror, and a proxy, on a computer that has no network.
const asMirror = "BOOTDATA_TEST_IS_A_MIRROR"

const (
	mirrorHost    = "mirror.example"
	mirrorAddress = "127.0.0.1:443"
	proxyAddress  = "127.0.0.1:3128"
)

func TestMain(m *testing.M) {
	if os.Getenv(asMirror) != "" {
		fmt.Fprintln(os.Stderr, serveMirror())
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// serveMirror serves the install script by TLS, and is a proxy that knows the way to it.
func serveMirror() error {
	proxy, err := net.Listen("tcp", proxyAddress)
	if err != nil {
		return err
	}
	certificate, err := tls.LoadX509KeyPair("/root/mirror.crt", "/root/mirror.key")
	if err != nil {
		return err
	}
	mirror, err := tls.Listen("tcp", mirrorAddress, &tls.Config{Certificates: []tls.Certificate{certificate}})
	if err != nil {
		return err
	}
	go func() { _ = http.Serve(proxy, http.HandlerFunc(tunnel)) }()
	if err := os.WriteFile("/root/ready", nil, 0o600); err != nil {
		return err
	}
	return http.Serve(mirror, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/k3s/install.sh" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_, _ = io.WriteString(w, scriptOfTest)
	}))
}

// tunnel connects to the mirror, whatever host it is asked for, and notes that host.
func tunnel(w http.ResponseWriter, r *http.Request) {
	_ = os.WriteFile("/root/proxied", []byte(r.Host), 0o600)
	there, err := net.Dial("tcp", mirrorAddress)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	here, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	_, _ = io.WriteString(here, "HTTP/1.1 200 OK\r\n\r\n")
	go func() { _, _ = io.Copy(there, here) }()
	_, _ = io.Copy(here, there)
}

// The real curl and wget, a mirror whose certificate is of a private CA, and a proxy.
func TestScript_DownloadsByTLSAndThroughAProxy(t *testing.T) {
	certificate, key, err := cert.GenerateSelfSignedCertKey(mirrorHost, []net.IP{net.ParseIP("127.0.0.1")}, nil)
	require.NoError(t, err)
	tests := map[string]struct {
		install bootstrapv1.InstallSpec
		proxy   bootstrapv1.ProxySpec
		fails   string
		proxied bool
	}{
		"private CA": {
			install: bootstrapv1.InstallSpec{ScriptURL: "https://127.0.0.1/k3s/install.sh", CAFile: "/etc/ssl/private-ca.pem"},
		},
		"CA that nobody knows": {
			install: bootstrapv1.InstallSpec{ScriptURL: "https://127.0.0.1/k3s/install.sh"},
			fails:   "the install script at https://127.0.0.1/k3s/install.sh can't be downloaded",
		},
		"page that isn't there": {
			install: bootstrapv1.InstallSpec{ScriptURL: "https://127.0.0.1/install.sh", CAFile: "/etc/ssl/private-ca.pem"},
			fails:   "the install script at https://127.0.0.1/install.sh can't be downloaded",
		},
		"proxy": {
			install: bootstrapv1.InstallSpec{ScriptURL: "https://" + mirrorHost + "/k3s/install.sh", CAFile: "/etc/ssl/private-ca.pem"},
			proxy:   bootstrapv1.ProxySpec{HTTPSProxy: "http://" + proxyAddress}, proxied: true,
		},
		"no proxy for the mirror": {
			install: bootstrapv1.InstallSpec{ScriptURL: "https://127.0.0.1/k3s/install.sh", CAFile: "/etc/ssl/private-ca.pem"},
			proxy:   bootstrapv1.ProxySpec{HTTPSProxy: "http://" + proxyAddress, NoProxy: []string{"127.0.0.0/8"}},
		},
	}
	for _, program := range []string{"curl", "wget"} {
		for name, tt := range tests {
			t.Run(program+"/"+name, func(t *testing.T) {
				c, m := computer.New(t), testMachine(Worker)
				c.Unveil(program)
				if program != "curl" {
					c.Hide("curl")
				}
				self, err := os.ReadFile("/proc/self/exe")
				require.NoError(t, err)
				c.Write("/root/mirror", string(self), 0o700)
				c.Write("/root/mirror.crt", string(certificate), 0o600)
				c.Write("/root/mirror.key", string(key), 0o600)
				m.Files = []File{{Path: "/etc/ssl/private-ca.pem", Content: certificate}}
				m.PreCommands = []string{"command -v curl >/root/curl; " + asMirror + "=1 /root/mirror >/root/log 2>&1 & until [ -e /root/ready ]; do :; done"}
				m.Install, m.Proxy = tt.install, tt.proxy
				log, err := bootstrap(t, c, m)
				require.Equal(t, tt.proxied, c.Exists("/root/proxied"), log)
				if tt.fails != "" {
					require.Error(t, err)
					require.Contains(t, log, tt.fails)
					require.False(t, c.Exists(computer.Sentinel))
					return
				}
				require.NoError(t, err, log)
				require.Equal(t, program == "curl", c.Read("/root/curl") != "")
				require.Contains(t, c.Read("/root/installed"), "v1.36.3+k3s1 true agent\n")
			})
		}
	}
}

package bootdata

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/ptr"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
	"github.com/capk3s/capk3s/test/testenv/computer"
)

// scriptOfTest notes what it was given.
const scriptOfTest = `{ echo "$INSTALL_K3S_VERSION $INSTALL_K3S_SKIP_START $*"; env | grep -E '^(INSTALL_K3S_SKIP_DOWN|INSTALL_K3S_ART|INSTALL_K3S_SKIP_SEL|GITHUB_URL|CURL_CA|WGETRC)' | sort; } >/root/installed
`

func checksum(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) }

func TestScript_InstallsFromWhereTheSpecSays(t *testing.T) {
	const usual = "v1.36.3+k3s1 true agent\n"
	tests := map[string]struct {
		install bootstrapv1.InstallSpec
		want    string
		asked   string
	}{
		"default": {want: usual, asked: "https://get.k3s.io"},
		"checksum": {
			bootstrapv1.InstallSpec{ScriptSHA256: checksum(scriptOfTest)}, usual, "https://get.k3s.io",
		},
		"mirror with a certificate authority of its own": {
			bootstrapv1.InstallSpec{
				ScriptURL: "https://m/it's.sh", ArtifactURL: "https://m/k3s/download", CAFile: "/etc/ssl/m.pem",
				Environment: map[string]bootstrapv1.EnvironmentValue{"INSTALL_K3S_SKIP_SELINUX_RPM": "$(reboot) 'x'"},
			},
			usual + "CURL_CA_BUNDLE=/etc/ssl/m.pem\nGITHUB_URL=https://m/k3s\nINSTALL_K3S_ARTIFACT_URL=https://m/k3s/download\n" +
				"INSTALL_K3S_SKIP_SELINUX_RPM=$(reboot) 'x'\nWGETRC=/run/dir/wgetrc\n",
			"https://m/it's.sh",
		},
		"script on the machine": {
			bootstrapv1.InstallSpec{ScriptPath: "/root/install.sh", ScriptSHA256: checksum(scriptOfTest)}, usual, "",
		},
		"no network": {
			bootstrapv1.InstallSpec{AirGapped: ptr.To(true), ScriptPath: "/root/install.sh"},
			usual + "INSTALL_K3S_SKIP_DOWNLOAD=true\n", "",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c, m := computer.New(t), testMachine(Worker)
			c.Command("curl", "for url; do :; done; echo \"$url\" >>/root/asked; cat /root/served")
			c.Command("k3s", `test "$1" != --version || echo "k3s version v1.36.3+k3s1 (abc)"`)
			c.Write("/root/served", scriptOfTest, 0o600)
			c.Write("/root/install.sh", scriptOfTest, 0o600)
			m.Install = tt.install
			log, err := bootstrap(t, c, m)
			require.NoError(t, err, log)
			require.True(t, c.Exists(computer.Sentinel), log)
			require.Equal(t, tt.want, c.Read("/root/installed"))
			if tt.asked == "" {
				require.False(t, c.Exists("/root/asked"))
			} else {
				require.Equal(t, tt.asked+"\n", c.Read("/root/asked"))
			}
		})
	}
}

// Without curl, wget is told of the certificate authorities by its own file.
func TestScript_WgetTrustsTheSameAuthorities(t *testing.T) {
	c, m := computer.New(t), testMachine(Worker)
	c.Hide("curl")
	c.Command("wget", "cp \"$WGETRC\" /root/wgetrc; echo 'true'")
	m.Install.CAFile = "/etc/ssl/m.pem"
	log, err := bootstrap(t, c, m)
	require.NoError(t, err, log)
	require.Equal(t, "ca_certificate=/etc/ssl/m.pem\n", c.Read("/root/wgetrc"))
}

// A K3s that isn't the one that was asked for is no success, and neither is a script that isn't.
func TestScript_RefusesToInstallAnythingElse(t *testing.T) {
	airGapped := bootstrapv1.InstallSpec{AirGapped: ptr.To(true)}
	tests := map[string]struct {
		install bootstrapv1.InstallSpec
		prepare func(*computer.Computer)
		want    []string
		tries   int
	}{
		"another script": {
			bootstrapv1.InstallSpec{ScriptSHA256: checksum("other")},
			func(*computer.Computer) {},
			[]string{"has the checksum " + checksum(scriptOfTest) + ", not " + checksum("other"), "couldn't be installed in 10 attempts"},
			10,
		},
		"no script": {
			airGapped, func(*computer.Computer) {},
			[]string{"there is no install script at /opt/install.sh", "couldn't be installed in 1 attempts"},
			0,
		},
		"no binary": {
			airGapped, func(c *computer.Computer) { c.Write("/opt/install.sh", "echo 'no binary' >&2; exit 1", 0o600) },
			[]string{"no binary", "couldn't be installed in 1 attempts"},
			0,
		},
		"another version": {
			airGapped, func(c *computer.Computer) {
				c.Write("/opt/install.sh", scriptOfTest, 0o600)
				c.Command("k3s", `echo "k3s version v1.36.3+k3s10 (abc)"`)
			},
			[]string{"the k3s on this machine isn't v1.36.3+k3s1: it says k3s version v1.36.3+k3s10"},
			0,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c, m := computer.New(t), testMachine(Worker)
			c.Command("curl", "echo try >>/root/tries; cat /root/served")
			c.Write("/root/served", scriptOfTest, 0o600)
			tt.prepare(c)
			m.Install = tt.install
			log, err := bootstrap(t, c, m)
			require.Error(t, err)
			for _, want := range tt.want {
				require.Contains(t, log, want)
			}
			require.False(t, c.Exists(computer.Sentinel))
			if tt.tries > 0 {
				require.Equal(t, tt.tries, strings.Count(c.Read("/root/tries"), "\n"))
				require.False(t, c.Exists("/root/installed"), "the script wasn't run")
			}
		})
	}
}

func TestScript_ExportsTheProxies(t *testing.T) {
	c, m := computer.New(t), testMachine(JoiningServer)
	m.Proxy = bootstrapv1.ProxySpec{HTTPProxy: "http://p:1", HTTPSProxy: "http://p:2", NoProxy: []string{"10.0.0.0/8", ".example.com"}}
	m.PreCommands = []string{"env | grep -i proxy | sort >/root/before"}
	c.Command("curl", "cat <<'END'\nenv | grep -i proxy | sort >/root/during\nEND")
	log, err := bootstrap(t, c, m)
	require.NoError(t, err, log)
	const direct = "10.0.0.0/8,.example.com,cp,localhost,127.0.0.1,::1"
	for _, path := range []string{"/root/before", "/root/during"} {
		require.ElementsMatch(t, []string{
			"HTTP_PROXY=http://p:1", "HTTPS_PROXY=http://p:2", "NO_PROXY=" + direct,
			"http_proxy=http://p:1", "https_proxy=http://p:2", "no_proxy=" + direct,
		}, strings.Fields(c.Read(path)))
	}
}

func TestScript_HardensTheMachineFirst(t *testing.T) {
	for _, role := range []Role{FirstServer, Worker} {
		t.Run(string(role), func(t *testing.T) {
			c, m := computer.New(t), testMachine(role)
			m.Hardened = true
			c.Command("sysctl", `test ! -e /root/installed && test "$1" = -p && cp "$2" /root/kernel`)
			log, err := bootstrap(t, c, m)
			require.NoError(t, err, log)
			require.Contains(t, c.Read("/root/kernel"), "vm.overcommit_memory=1\n")
			require.Equal(t, role != Worker, c.Exists("/var/lib/rancher/k3s/server/logs"))

			c.Command("sysctl", "exit 1")
			_, err = bootstrap(t, c, m)
			require.Error(t, err)
		})
	}
}

func TestPlan_HardenedServersHaveTheirPolicies(t *testing.T) {
	m := testMachine(JoiningServer)
	m.Hardened = true
	plan := planOf(t, m)
	require.Contains(t, contentOf(t, plan, "/var/lib/rancher/k3s/server/audit.yaml"), "level: Metadata")
	require.Contains(t, contentOf(t, plan, "/var/lib/rancher/k3s/server/psa.yaml"), "enforce: restricted")
	m.Role = Worker
	require.Nil(t, fileAt(planOf(t, m), "/var/lib/rancher/k3s/server/audit.yaml"))
}

func TestPlan_ExternalDatastoreNeedsNoWayToJoin(t *testing.T) {
	m := testMachine(FirstServer)
	m.Config["datastore-endpoint"] = "postgres://db/k3s"
	require.Nil(t, fileAt(planOf(t, m), "/run/dir/90-join.yaml"))
}

func TestPlan_DefaultNeedsNoEnvironment(t *testing.T) {
	require.Nil(t, fileAt(planOf(t, testMachine(FirstServer)), "/run/dir/environment"))
}

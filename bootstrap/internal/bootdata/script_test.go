package bootdata

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capk3s/capk3s/test/testenv/computer"
)

// Whatever fails: no computer.Sentinel, a status that isn't zero, and a line in the log that says what it was.
func TestScript_FailureIsVisible(t *testing.T) {
	tests := map[string]struct {
		prepare func(*computer.Computer, *Machine)
		want    string
		tries   int
	}{
		"network": {
			func(c *computer.Computer, _ *Machine) { c.Command("curl", "echo try >>/root/tries; exit 6") },
			"FAILED: K3s v1.36.3+k3s1 couldn't be installed in 10 attempts", 10,
		},
		"empty install script": {
			func(c *computer.Computer, _ *Machine) { c.Command("curl", "echo try >>/root/tries") },
			"FAILED: K3s v1.36.3+k3s1 couldn't be installed in 10 attempts", 10,
		},
		"no such version": {
			func(c *computer.Computer, _ *Machine) { c.Command("curl", "echo try >>/root/tries; echo exit 1") },
			"FAILED: K3s v1.36.3+k3s1 couldn't be installed in 10 attempts", 10,
		},
		"unit can't be started": {
			func(c *computer.Computer, _ *Machine) { c.Command("systemctl", `test "$1" != start`) },
			"FAILED: k3s couldn't be started", 0,
		},
		"K3s never comes up": {
			func(c *computer.Computer, _ *Machine) { c.Command("systemctl", `test "$1" != is-active`) },
			"the log of k3s\nk3s-bootstrap: FAILED: k3s didn't come up within 15 minutes", 0,
		},
		"command before": {
			func(_ *computer.Computer, m *Machine) {
				m.PreCommands = []string{"true", "(exit 7)", "touch /root/reached"}
			},
			"FAILED: preK3sCommands/001 ended with status 7", 0,
		},
		"command after": {
			func(_ *computer.Computer, m *Machine) { m.PostCommands = []string{"false", "touch /root/reached"} },
			"FAILED: postK3sCommands/000 ended with status 1", 0,
		},
		"owner that nobody is": {
			func(_ *computer.Computer, m *Machine) {
				m.Files = []File{{Path: "/root/f", Owner: "nobody-of-that-name"}}
				m.PreCommands = []string{"touch /root/reached"}
			},
			"FAILED: the file /root/f can't be given to nobody-of-that-name", 0,
		},
		"setting with instance data that the machine lacks": {
			func(_ *computer.Computer, m *Machine) {
				m.Config["node-name"] = "a-CI_MISSING_JINJA_VAR/local_ipv9"
				m.PreCommands = []string{"touch /root/reached"}
			},
			"FAILED: /etc/rancher/k3s/config.yaml has an expression over instance data that this machine doesn't have: CI_MISSING_JINJA_VAR/local_ipv9", 0,
		},
		"command with instance data that the machine lacks": {
			func(_ *computer.Computer, m *Machine) {
				m.PreCommands = []string{"touch /root/reached"}
				m.PostCommands = []string{"hostnamectl set-hostname CI_MISSING_JINJA_VAR/hostname2"}
			},
			"FAILED: /run/dir/postK3sCommands/000 has an expression over instance data that this machine doesn't have", 0,
		},
		"command that exits": {
			func(_ *computer.Computer, m *Machine) { m.PreCommands = []string{"exit 0"} },
			"FAILED: ended early, with status 0", 0,
		},
		"command that isn't shell": {
			func(_ *computer.Computer, m *Machine) { m.PreCommands = []string{"if ("} },
			"FAILED:", 0,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c, m := computer.New(t), testMachine(FirstServer)
			tt.prepare(c, &m)
			log, err := bootstrap(t, c, m)
			require.Error(t, err)
			require.Contains(t, log, tt.want)
			require.False(t, c.Exists(computer.Sentinel))
			require.False(t, c.Exists("/root/reached"), "later commands don't run")
			if tt.tries > 0 {
				require.Equal(t, tt.tries, strings.Count(c.Read("/root/tries"), "\n"))
			}
		})
	}
}

// OpenRC says that a service runs as soon as its process does; whether K3s is up is asked of its own API.
func TestScript_OpenRC(t *testing.T) {
	for role, want := range map[Role]struct{ service, kubeconfig string }{
		JoiningServer: {"k3s", "/var/lib/rancher/k3s/server/cred/admin.kubeconfig"},
		Worker:        {"k3s-agent", "/var/lib/rancher/k3s/agent/kubelet.kubeconfig"},
	} {
		t.Run(string(role), func(t *testing.T) {
			c := computer.New(t)
			c.Hide("systemctl")
			c.Command("rc-service", `echo "rc-service $*" >>/root/calls`)
			c.Command("k3s", `echo "k3s $*" >>/root/calls; test "$(grep -c k3s /root/calls)" -ge 4`)
			log, err := bootstrap(t, c, testMachine(role))
			require.NoError(t, err, log)
			probe := "k3s kubectl --kubeconfig " + want.kubeconfig + " get --raw /readyz\n"
			require.Equal(t, "rc-service "+want.service+" start\n"+strings.Repeat(probe, 3), c.Read("/root/calls"))
			require.True(t, c.Exists(computer.Sentinel))
		})
	}
}

// A download that stands still is an attempt that failed.
func TestScript_BoundsEachAttempt(t *testing.T) {
	c := computer.New(t)
	c.Command("timeout", `echo "$1" >>/root/limits; shift; exec /usr/bin/timeout 0.2 "$@"`)
	c.Command("curl", "echo 'while :; do :; done'")
	log, err := bootstrap(t, c, testMachine(Worker))
	require.Error(t, err)
	require.Contains(t, log, "FAILED: K3s v1.36.3+k3s1 couldn't be installed in 10 attempts")
	require.Equal(t, strings.Repeat("900\n", 10), c.Read("/root/limits"))
}

func TestScript_NeedsNoTimeout(t *testing.T) {
	c := computer.New(t)
	c.Hide("timeout")
	log, err := bootstrap(t, c, testMachine(Worker))
	require.NoError(t, err, log)
	require.Equal(t, "v1.36.3+k3s1 true agent\n", c.Read("/root/installed"))
}

// bootstrap does what comes before the plan's command, and runs it.
func bootstrap(t *testing.T, c *computer.Computer, m Machine) (string, error) {
	t.Helper()
	plan := planOf(t, m)
	for _, file := range ForCloudInit(plan.Files, "/run/dir") {
		c.Write(file.Path, string(file.Content), 0o600)
	}
	return c.Run(plan.Command...)
}

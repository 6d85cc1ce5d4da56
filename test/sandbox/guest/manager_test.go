package guest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// patience is how long a unit may take to do a thing on a computer that has much else to do.
const patience = time.Minute

// notifyReady is a shell command that says READY=1 as sd_notify does.
const notifyReady = `python3 -c 'import os,socket; socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"READY=1", os.environ["NOTIFY_SOCKET"])'`

// newManager has one unit "k3s" that runs the script with the extra [Service] lines.
func newManager(t *testing.T, script, service string) *Manager {
	t.Helper()
	dir := t.TempDir()
	m := &Manager{UnitDir: dir, RunDir: dir, LogDir: dir, RestartDelay: 50 * time.Millisecond}
	write(t, dir, "main.sh", "#!/bin/sh\ncd "+dir+"\n"+script)
	write(t, dir, "k3s.service", "[Service]\nExecStart="+dir+"/main.sh\n"+service+"\n[Install]\nWantedBy=multi-user.target\n")
	t.Cleanup(m.StopAll)
	return m
}

func (m *Manager) do(line string) Response { return m.systemctl(strings.Fields(line)) }

func TestStart_WaitsForReady(t *testing.T) {
	m := newManager(t, "while [ ! -e go ]; do sleep 0.02; done\n"+notifyReady+"\nexec sleep 1000", "Type=notify")
	require.Zero(t, m.do("start --no-block k3s").Code)
	require.Eventually(t, func() bool { return m.do("show k3s -p SubState --value").Stdout == "start\n" }, patience, 10*time.Millisecond)
	require.Equal(t, Response{Stdout: "activating\n", Code: 3}, m.do("is-active k3s"))

	write(t, m.UnitDir, "go", "")
	require.Equal(t, Response{}, m.do("start k3s"), "a second start waits for the same attempt")
	require.Equal(t, Response{Stdout: "active\n"}, m.do("is-active k3s"))
}

func TestStart_FailsWhenFirstAttemptExitsAndRetriesAllTheSame(t *testing.T) {
	m := newManager(t, "echo x >>attempts\n[ $(wc -l <attempts) = 1 ] && exit 3\n"+notifyReady+"\nexec sleep 1000", "Type=notify\nRestart=always")
	response := m.do("start k3s")
	require.Equal(t, 1, response.Code)
	require.Contains(t, response.Stderr, "Job for k3s.service failed because the control process exited with error code.")
	require.Eventually(t, func() bool { return m.do("is-active k3s").Code == 0 }, patience, 10*time.Millisecond)
	require.Equal(t, "1\n3\n", m.do("show k3s -p NRestarts,ExecMainStatus --value").Stdout)
}

func TestStart_ExitZeroBeforeReadyIsAProtocolFailure(t *testing.T) {
	m := newManager(t, "exit 0", "Type=notify")
	require.Contains(t, m.do("start k3s").Stderr, "did not take the steps required")
	require.Equal(t, Response{Stdout: "failed\n"}, m.do("is-failed k3s"))
}

func TestRestart_AlwaysAlsoAfterACleanExit(t *testing.T) {
	m := newManager(t, "echo x >>attempts", "Restart=always")
	m.do("start k3s")
	require.Eventually(t, func() bool {
		data, _ := os.ReadFile(filepath.Join(m.UnitDir, "attempts"))
		return len(data) >= 6
	}, patience, 10*time.Millisecond)
	m.do("stop k3s")
	require.Equal(t, "inactive\n", m.do("is-active k3s").Stdout)
}

func TestStart_FailsWhenExecStartPreFails(t *testing.T) {
	m := newManager(t, "exec sleep 1000", "ExecStartPre=-/bin/false")
	require.Zero(t, m.do("start k3s").Code, "a leading minus forgives")
	m = newManager(t, "exec sleep 1000", "ExecStartPre=/bin/false")
	require.Equal(t, 1, m.do("start k3s").Code)
}

func TestDropIn_CountsAfterDaemonReload(t *testing.T) {
	m := newManager(t, "echo $A >>seen; exec sleep 1000", "Environment=A=1")
	seen := func() string {
		data, _ := os.ReadFile(filepath.Join(m.UnitDir, "seen"))
		return string(data)
	}
	m.do("start k3s")
	require.Eventually(t, func() bool { return seen() == "1\n" }, patience, 10*time.Millisecond)
	write(t, m.UnitDir, "k3s.service.d/a.conf", "[Service]\nEnvironment=A=2\n")
	m.do("restart k3s")
	require.Eventually(t, func() bool { return seen() == "1\n1\n" }, patience, 10*time.Millisecond)
	require.Zero(t, m.do("daemon-reload").Code)
	m.do("restart k3s")
	require.Eventually(t, func() bool { return seen() == "1\n1\n2\n" }, patience, 10*time.Millisecond)
}

func TestStop_ReachesTheProcessGroupUnlessKillModeIsProcess(t *testing.T) {
	for mode, survives := range map[string]bool{"control-group": false, "process": true} {
		t.Run(mode, func(t *testing.T) {
			m := newManager(t, "sleep 1000 & echo $! >child\nexec sleep 1000", "KillMode="+mode)
			m.do("start k3s")
			var pid string
			require.Eventually(t, func() bool {
				data, _ := os.ReadFile(filepath.Join(m.UnitDir, "child"))
				pid = strings.TrimSpace(string(data))
				return pid != ""
			}, patience, 10*time.Millisecond)
			m.do("stop k3s")
			running := func() bool {
				status, err := os.ReadFile("/proc/" + pid + "/stat")
				return err == nil && !strings.Contains(string(status), ") Z ")
			}
			if survives {
				require.True(t, running())
				require.NoError(t, exec.Command("kill", pid).Run())
				return
			}
			require.Eventually(t, func() bool { return !running() }, patience, 10*time.Millisecond)
		})
	}
}

func TestEnable_StartsAtBoot(t *testing.T) {
	m := newManager(t, "exec sleep 1000", "")
	require.Equal(t, 1, m.do("is-enabled k3s").Code)
	require.Contains(t, m.do("enable k3s").Stderr, "Created symlink")
	require.Equal(t, Response{Stdout: "enabled\n"}, m.do("is-enabled k3s"))
	m.StartEnabled()
	require.Eventually(t, func() bool { return m.do("is-active k3s").Code == 0 }, patience, 10*time.Millisecond)
	m.do("disable --now k3s")
	require.Equal(t, "inactive\n", m.do("is-active k3s").Stdout)
	require.Equal(t, 1, m.do("is-enabled k3s").Code)
}

func TestSystemctl_RefusesWhatItDoesNotKnow(t *testing.T) {
	m := newManager(t, "", "")
	require.Equal(t, Response{Code: 5, Stderr: "Failed to start nope.service: Unit nope.service not found.\n"}, m.do("start nope"))
	require.Equal(t, 1, m.do("frobnicate k3s").Code)
	require.Equal(t, 1, m.do("start --frobnicate k3s").Code)
}

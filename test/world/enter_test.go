package world

import (
	"bufio"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var current *World

func TestMain(m *testing.M) {
	current = Enter(PIDFile(os.Getenv("WORLD_TEST_PIDFILE")))
	os.Exit(m.Run())
}

func TestEnter_IsCutOffFromTheOutside(t *testing.T) {
	links, err := net.Interfaces()
	require.NoError(t, err)
	var names []string
	for _, link := range links {
		names = append(names, link.Name)
	}
	require.Subset(t, []string{"lo", Bridge}, names, "whatever else there is would lead somewhere")
	require.Contains(t, names, Bridge)

	_, err = net.DialTimeout("tcp", "192.0.2.1:80", time.Second)
	require.ErrorIs(t, err, syscall.ENETUNREACH)
}

// Whoever talks to the host must find it at the same hardware address though machines come and go.
func TestEnter_BridgeKeepsItsAddress(t *testing.T) {
	before, err := net.InterfaceByName(Bridge)
	require.NoError(t, err)
	// A bridge without an address of its own takes the lowest one of its ports.
	for _, line := range []string{"link add port address 00:00:00:00:00:01 type veth peer name peer", "link set port master " + Bridge} {
		require.NoError(t, exec.Command("ip", strings.Fields(line)...).Run())
	}
	t.Cleanup(func() { require.NoError(t, exec.Command("ip", "link", "delete", "port").Run()) })
	after, err := net.InterfaceByName(Bridge)
	require.NoError(t, err)
	require.Equal(t, before.HardwareAddr, after.HardwareAddr)
}

// asked runs this test binary again, outside of any world as far as it can
// tell, with only the helper test that word names.
func asked(t *testing.T, word string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestHelper$", "-test.v")
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, stageVariable+"=") {
			cmd.Env = append(cmd.Env, variable)
		}
	}
	cmd.Env = append(cmd.Env, "WORLD_TEST_HELPER="+word)
	return cmd
}

// TestHelper does what the other tests ask of it in a world of its own.
func TestHelper(t *testing.T) {
	switch os.Getenv("WORLD_TEST_HELPER") {
	case "":
		t.Skip("nobody asked")
	case "exit":
		_, _ = os.Stderr.WriteString("to stderr\n")
		os.Exit(7)
	case "detach":
		require.NoError(t, current.Detach())
		select {}
	case "linger":
		// Leaves a process that nothing in the world waits for.
		require.NoError(t, exec.Command("setsid", "--fork", "sleep", "86399").Run())
		println("lingering")
		select {}
	}
}

func TestEnter_KeepsStreamsAndExitCode(t *testing.T) {
	out, err := asked(t, "exit").CombinedOutput()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	require.Equal(t, 7, exit.ExitCode(), "%s", out)
	require.Contains(t, string(out), "to stderr\n")
}

func TestEnter_NothingOutlivesTheProgram(t *testing.T) {
	for name, sig := range map[string]syscall.Signal{"killed": syscall.SIGKILL, "interrupted": syscall.SIGINT, "terminated": syscall.SIGTERM} {
		t.Run(name, func(t *testing.T) {
			cmd := asked(t, "linger")
			stderr, err := cmd.StderrPipe()
			require.NoError(t, err)
			require.NoError(t, cmd.Start())
			line, err := bufio.NewReader(stderr).ReadString('\n')
			require.NoError(t, err)
			require.Equal(t, "lingering\n", line)
			require.NoError(t, exec.Command("pgrep", "-f", "sleep 86399").Run(), "the process that is to end must be there first")

			require.NoError(t, cmd.Process.Signal(sig))
			_ = cmd.Wait()
			require.Eventually(t, func() bool {
				return exec.Command("pgrep", "-f", "sleep 86399").Run() != nil
			}, time.Minute, 20*time.Millisecond)
		})
	}
}

func TestDetach_LeavesTheWorldUntilEnd(t *testing.T) {
	pidFile := filepath.Join(t.TempDir(), "pid")
	cmd := asked(t, "detach")
	cmd.Env = append(cmd.Env, "WORLD_TEST_PIDFILE="+pidFile)
	out, err := cmd.CombinedOutput() // returns once nobody holds the output any more
	require.NoError(t, err, "%s", out)

	inside, err := Join(pidFile, "ip", "address", "show", Bridge)
	require.NoError(t, err)
	shown, err := inside.CombinedOutput()
	require.NoError(t, err, "%s", shown)
	require.Contains(t, string(shown), "10.213.0.1/16")

	second := asked(t, "exit")
	second.Env = append(second.Env, "WORLD_TEST_PIDFILE="+pidFile)
	out, err = second.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "another one is still running")

	require.NoError(t, End(pidFile))
	require.ErrorIs(t, End(pidFile), ErrNoWorld)
	_, err = Join(pidFile, "true")
	require.ErrorIs(t, err, ErrNoWorld)
}

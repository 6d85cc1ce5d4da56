package bootdata

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capk3s/capk3s/pkg/k3s"
)

func TestPlan_FirstServer(t *testing.T) {
	m := testMachine(FirstServer)
	m.CAFiles = []File{{Path: "/var/lib/rancher/k3s/server/tls/server-ca.key", Permissions: "0600", Content: []byte("key")}}
	got := planOf(t, m)

	require.Equal(t, []string{"sh", "/run/dir/bootstrap.sh", "server", "v1.36.3+k3s1", "/var/lib/rancher/k3s"}, got.Command)
	require.Equal(t, "token: \"T\"\n", contentOf(t, got, ConfigPath))
	require.Equal(t, "0600", fileAt(got, ConfigPath).Permissions)
	require.Equal(t, "server: \"https://cp:6443\"\n", contentOf(t, got, "/run/dir/90-join.yaml"))
	require.Equal(t, "key", contentOf(t, got, "/var/lib/rancher/k3s/server/tls/server-ca.key"))
	require.Contains(t, contentOf(t, got, dropInPath), "! test -e /var/lib/rancher/k3s/server/db/etcd/tombstone")
	require.Equal(t, string(script), contentOf(t, got, "/run/dir/bootstrap.sh"))
}

func TestPlan_OnlyTheFirstServerGetsCAsAndTheWayToJoinItself(t *testing.T) {
	for _, role := range []Role{JoiningServer, Worker} {
		m := testMachine(role)
		m.CAFiles = []File{{Path: "/ca.key", Content: []byte("key")}}
		got := planOf(t, m)
		require.Nil(t, fileAt(got, "/ca.key"), role)
		require.Nil(t, fileAt(got, "/run/dir/90-join.yaml"), role)
		require.Equal(t, role == JoiningServer, fileAt(got, dropInPath) != nil, role)
	}
	require.Equal(t, "agent", planOf(t, testMachine(Worker)).Command[2])
}

func TestPlan_KeepsStateWhereTheSpecSays(t *testing.T) {
	m := testMachine(JoiningServer)
	m.Config["data-dir"] = "/data/k3s"
	got := planOf(t, m)
	require.Equal(t, "/data/k3s", got.Command[4])
	require.Contains(t, contentOf(t, got, dropInPath), "/data/k3s/server/db/etcd/tombstone")

	for _, dir := range []string{"data", "/a b", "/a'", "/$(reboot)", "/a/", "{{ v1.region }}"} {
		m.Config["data-dir"] = dir
		_, err := m.Plan("/run/dir")
		require.ErrorContains(t, err, "agentConfig.dataDir must be", dir)
	}
}

func TestPlan_RefusesWhatIsNoVersion(t *testing.T) {
	m := testMachine(Worker)
	m.Version = ""
	_, err := m.Plan("/run/dir")
	require.Error(t, err)
}

func testMachine(role Role) Machine {
	return Machine{
		Role: role, Version: "v1.36.3+k3s1", Endpoint: k3s.Endpoint{Host: "cp", Port: 6443}, Config: k3s.Config{"token": "T"},
	}
}

func planOf(t *testing.T, m Machine) Plan {
	t.Helper()
	plan, err := m.Plan("/run/dir")
	require.NoError(t, err)
	return plan
}

// fileAt returns the file at a path, or nil.
func fileAt(plan Plan, path string) *File {
	for i := range plan.Files {
		if plan.Files[i].Path == path {
			return &plan.Files[i]
		}
	}
	return nil
}

func contentOf(t *testing.T, plan Plan, path string) string {
	t.Helper()
	file := fileAt(plan, path)
	require.NotNil(t, file, path)
	return string(file.Content)
}

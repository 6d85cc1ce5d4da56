package bootdata

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPlan_RefusesFilesOfTheOperator(t *testing.T) {
	for _, path := range []string{ConfigPath, dropInPath, joinedPath, "/etc/rancher/k3s/../k3s/config.yaml"} {
		require.ErrorContains(t, planError(path), "files[0].path: "+path+" is written by the operator", path)
	}
}

// What lies beside the commands would run as one, and the sentinel would say that K3s runs.
func TestPlan_RefusesFilesInFoldersOfTheOperator(t *testing.T) {
	for _, path := range []string{"/run/dir/preK3sCommands/999", "/run/dir/environment", "/run/cluster-api/bootstrap-success.complete"} {
		require.ErrorContains(t, planError("/a", path), "files[1].path: "+path+" is in a folder of the operator", path)
	}
	require.NoError(t, planError("/run/directory", "/run/cluster-api.txt", "/etc/rancher/k3s/config.yaml.d/mine.yaml"))
}

// A file in the place of a folder keeps cloud-init from writing all later ones.
func TestPlan_RefusesAFileInThePlaceOfAFolder(t *testing.T) {
	for name, tt := range map[string]struct {
		paths []string
		want  string
	}{
		"of the user":     {[]string{"/opt/a/b/c", "/opt/a"}, "files[1].path: /opt/a is the folder of /opt/a/b/c, so that it can't be a file"},
		"of the operator": {[]string{"/etc/rancher"}, "files[0].path: /etc/rancher is the folder of /etc/rancher/k3s/config.yaml"},
	} {
		t.Run(name, func(t *testing.T) { require.ErrorContains(t, planError(tt.paths...), tt.want) })
	}
	require.NoError(t, planError("/opt/a", "/opt/ab", "/opt/a.b/c"))
}

func TestPlan_RefusesNamesThatNoFileSystemTakes(t *testing.T) {
	for _, path := range []string{"/a/" + strings.Repeat("é", 128) + "/b", "/a\x00b"} {
		require.ErrorContains(t, planError(path), "files[0].path: a name in it has more than 255 bytes, or a zero byte")
	}
	require.NoError(t, planError("/a/"+strings.Repeat("n", 255)))
}

// planError says what is wrong with files at these paths.
func planError(paths ...string) error {
	m := testMachine(FirstServer)
	for _, path := range paths {
		m.Files = append(m.Files, File{Path: path})
	}
	_, err := m.Plan("/run/dir")
	return err
}

package cloudconfig

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
	"github.com/capk3s/capk3s/pkg/k3s"
)

func TestRender_FirstServer(t *testing.T) {
	m := testMachine(FirstServer)
	m.CAFiles = []File{{Path: "/var/lib/rancher/k3s/server/tls/server-ca.key", Permissions: "0600", Content: []byte("key")}}
	got := parse(t, m)

	require.Equal(t, [][]string{{"sh", scriptPath, "server", "v1.36.3+k3s1", "/var/lib/rancher/k3s"}}, got.RunCmd)
	require.Equal(t, "token: \"T\"\n", got.content(t, ConfigPath))
	require.Equal(t, "0600", got.file(ConfigPath).Permissions)
	require.Equal(t, "server: \"https://cp:6443\"\n", got.content(t, joinPath))
	require.Equal(t, "key", got.content(t, "/var/lib/rancher/k3s/server/tls/server-ca.key"))
	require.Contains(t, got.content(t, dropInPath), "! test -e /var/lib/rancher/k3s/server/db/etcd/tombstone")
	require.Equal(t, string(script), got.content(t, scriptPath))
}

func TestRender_OnlyTheFirstServerGetsCAsAndTheWayToJoinItself(t *testing.T) {
	for _, role := range []Role{JoiningServer, Worker} {
		m := testMachine(role)
		m.CAFiles = []File{{Path: "/ca.key", Content: []byte("key")}}
		got := parse(t, m)
		require.Nil(t, got.file("/ca.key"), role)
		require.Nil(t, got.file(joinPath), role)
		require.Equal(t, role == JoiningServer, got.file(dropInPath) != nil, role)
	}
	require.Equal(t, "agent", parse(t, testMachine(Worker)).RunCmd[0][2])
}

func TestRender_KeepsStateWhereTheSpecSays(t *testing.T) {
	m := testMachine(JoiningServer)
	m.Config["data-dir"] = "/data/k3s"
	got := parse(t, m)
	require.Equal(t, "/data/k3s", got.RunCmd[0][4])
	require.Contains(t, got.content(t, dropInPath), "/data/k3s/server/db/etcd/tombstone")

	for _, dir := range []string{"data", "/a b", "/a'", "/$(reboot)", "/a/", "{{ v1.region }}"} {
		m.Config["data-dir"] = dir
		_, err := Render(m)
		require.ErrorContains(t, err, "data-dir must be", dir)
	}
}

func TestRender_IsATemplateOnlyIfSomethingIsRendered(t *testing.T) {
	literal := "{{range .items}} ${#a[@]} {% raw {#"
	render := func(change func(*Machine)) string {
		m := testMachine(Worker)
		m.Files = []File{{Path: "/literal", Content: []byte(literal), Rendered: true}}
		change(&m)
		data, err := Render(m)
		require.NoError(t, err)
		return string(data)
	}
	require.True(t, strings.HasPrefix(render(func(*Machine) {}), "#cloud-config\n"))
	fromSecret := File{Path: "/secret", Content: []byte("{{ v1.region }}")}
	require.True(t, strings.HasPrefix(render(func(m *Machine) { m.Files = append(m.Files, fromSecret) }), "#cloud-config\n"))

	for name, change := range map[string]func(*Machine){
		"command": func(m *Machine) { m.PreCommands = []string{"echo {{ v1.region }}"} },
		"setting": func(m *Machine) { m.Config["node-label"] = []string{"region={{ v1.region }}"} },
		"file": func(m *Machine) {
			m.Files = append(m.Files, File{Path: "/f", Content: []byte("{{ v1.region }}"), Rendered: true})
		},
	} {
		data := render(change)
		require.True(t, strings.HasPrefix(data, "## template: jinja\n#cloud-config\n"), name)
		var valid any
		require.NoError(t, yaml.Unmarshal([]byte(data), &valid), "it's YAML before it is rendered, too")
	}
}

func TestRender_RefusesFilesOfTheOperator(t *testing.T) {
	for _, path := range []string{ConfigPath, dropInPath, joinedPath, scriptPath, "/etc/rancher/k3s/../k3s/config.yaml"} {
		m := testMachine(FirstServer)
		m.Files = []File{{Path: path}}
		_, err := Render(m)
		require.ErrorContains(t, err, "is written by the operator", path)
	}
}

func TestRender_RefusesWhatIsNoVersion(t *testing.T) {
	m := testMachine(Worker)
	m.Version = ""
	_, err := Render(m)
	require.Error(t, err)
}

func TestRender_CompressesWhatIsBig(t *testing.T) {
	big := strings.Repeat("a line that is there more than once\n", 100)
	m := testMachine(Worker)
	m.Files = []File{{Path: "/big", Content: []byte(big)}, {Path: "/binary", Content: []byte{0, 1, 0xff}}}
	got := parse(t, m)
	require.Equal(t, "gz+b64", got.file("/big").Encoding)
	require.Equal(t, big, got.content(t, "/big"))
	require.Equal(t, "b64", got.file("/binary").Encoding)
	require.Equal(t, "\x00\x01\xff", got.content(t, "/binary"))
}

func TestFromAPI(t *testing.T) {
	zipped, err := compress([]byte("zipped"))
	require.NoError(t, err)
	b64 := base64.StdEncoding.EncodeToString
	fromSecret := bootstrapv1.FileSource{Secret: bootstrapv1.SecretFileSource{Name: "s", Key: "k"}}

	tests := map[string]struct {
		file   bootstrapv1.File
		secret []byte
		want   File
	}{
		"inline": {
			bootstrapv1.File{Path: "/f", Content: "c", Owner: "a:b", Permissions: "0640", Append: ptr.To(true)},
			nil,
			File{Path: "/f", Content: []byte("c"), Owner: "a:b", Permissions: "0640", Append: true, Rendered: true},
		},
		"base64": {
			bootstrapv1.File{Path: "/f", Content: b64([]byte("c")) + "\n", Encoding: bootstrapv1.Base64},
			nil,
			File{Path: "/f", Content: []byte("c")},
		},
		"gzip and base64": {
			bootstrapv1.File{Path: "/f", Content: b64(zipped), Encoding: bootstrapv1.GzipBase64},
			nil,
			File{Path: "/f", Content: zipped, Gzipped: true},
		},
		"Secret": {
			bootstrapv1.File{Path: "/f", ContentFrom: fromSecret},
			[]byte{0xff},
			File{Path: "/f", Content: []byte{0xff}, Permissions: "0600"},
		},
		"Secret with gzip and permissions": {
			bootstrapv1.File{Path: "/f", ContentFrom: fromSecret, Encoding: bootstrapv1.Gzip, Permissions: "0644"},
			zipped,
			File{Path: "/f", Content: zipped, Gzipped: true, Permissions: "0644"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := FromAPI(&tt.file, tt.secret)
			require.NoError(t, err)
			require.Equal(t, tt.want, got)
		})
	}
}

func TestFromAPI_RefusesContentThatIsNotEncodedAsItSays(t *testing.T) {
	for _, encoding := range []bootstrapv1.Encoding{bootstrapv1.Base64, bootstrapv1.Gzip, bootstrapv1.GzipBase64} {
		_, err := FromAPI(&bootstrapv1.File{Path: "/f", Content: "c2VjcmV0!", Encoding: encoding}, nil)
		require.ErrorContains(t, err, "/f", encoding)
		require.NotContains(t, err.Error(), "c2VjcmV0", encoding)
	}
}

func testMachine(role Role) Machine {
	return Machine{
		Role: role, Version: "v1.36.3+k3s1", Endpoint: k3s.Endpoint{Host: "cp", Port: 6443}, Config: k3s.Config{"token": "T"},
	}
}

type parsed struct {
	RunCmd     [][]string  `json:"runcmd"`
	WriteFiles []writeFile `json:"write_files"`
}

type writeFile struct {
	Path, Owner, Permissions, Encoding, Content string
	Append                                      bool
}

func parse(t *testing.T, m Machine) parsed {
	t.Helper()
	data, err := Render(m)
	require.NoError(t, err)
	var p parsed
	require.NoError(t, yaml.UnmarshalStrict(data, &p), string(data))
	return p
}

func (p parsed) file(path string) *writeFile {
	for i := range p.WriteFiles {
		if p.WriteFiles[i].Path == path {
			return &p.WriteFiles[i]
		}
	}
	return nil
}

func (p parsed) content(t *testing.T, path string) string {
	t.Helper()
	file := p.file(path)
	require.NotNil(t, file, path)
	if file.Encoding == "" {
		return file.Content
	}
	data, err := base64.StdEncoding.DecodeString(file.Content)
	require.NoError(t, err)
	if file.Encoding == "b64" {
		return string(data)
	}
	reader, err := gzip.NewReader(bytes.NewReader(data))
	require.NoError(t, err)
	data, err = io.ReadAll(reader)
	require.NoError(t, err)
	return string(data)
}

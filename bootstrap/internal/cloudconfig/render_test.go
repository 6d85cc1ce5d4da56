package cloudconfig

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/capk3s/capk3s/bootstrap/internal/bootdata"
	"github.com/capk3s/capk3s/pkg/k3s"
)

func TestRender_IsATemplateOnlyIfSomethingIsRendered(t *testing.T) {
	literal := "{{range .items}} ${#a[@]} {% raw {#"
	render := func(change func(*bootdata.Machine)) string {
		m := testMachine(bootdata.Worker)
		m.Files = []bootdata.File{{Path: "/literal", Content: []byte(literal), Rendered: true}}
		change(&m)
		data, err := Render(m)
		require.NoError(t, err)
		return string(data)
	}
	require.True(t, strings.HasPrefix(render(func(*bootdata.Machine) {}), "#cloud-config\n"))
	fromSecret := bootdata.File{Path: "/secret", Content: []byte("{{ v1.region }}")}
	require.True(t, strings.HasPrefix(render(func(m *bootdata.Machine) { m.Files = append(m.Files, fromSecret) }), "#cloud-config\n"))

	for name, change := range map[string]func(*bootdata.Machine){
		"command": func(m *bootdata.Machine) { m.PreCommands = []string{"echo {{ v1.region }}"} },
		"setting": func(m *bootdata.Machine) { m.Config["node-label"] = []string{"region={{ v1.region }}"} },
		"file": func(m *bootdata.Machine) {
			m.Files = append(m.Files, bootdata.File{Path: "/f", Content: []byte("{{ v1.region }}"), Rendered: true})
		},
	} {
		data := render(change)
		require.True(t, strings.HasPrefix(data, "## template: jinja\n#cloud-config\n"), name)
		var valid any
		require.NoError(t, yaml.Unmarshal([]byte(data), &valid), "it's YAML before it is rendered, too")
	}
}

func TestRender_CompressesWhatIsBig(t *testing.T) {
	big := strings.Repeat("a line that is there more than once\n", 100)
	m := testMachine(bootdata.Worker)
	m.Files = []bootdata.File{{Path: "/big", Content: []byte(big)}, {Path: "/binary", Content: []byte{0, 1, 0xff}}}
	got := parse(t, m)
	require.Equal(t, "gz+b64", got.file("/big").Encoding)
	require.Equal(t, big, got.content(t, "/big"))
	require.Equal(t, "b64", got.file("/binary").Encoding)
	require.Equal(t, "\x00\x01\xff", got.content(t, "/binary"))
}

func testMachine(role bootdata.Role) bootdata.Machine {
	return bootdata.Machine{
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

func parse(t *testing.T, m bootdata.Machine) parsed {
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

package cloudconfig

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/capk3s/capk3s/bootstrap/internal/bootdata"
	"github.com/capk3s/capk3s/pkg/k3s"
	"github.com/capk3s/capk3s/test/testenv/computer"
)

// text is what somebody writes, and what must arrive.
type text struct{ written, arrives string }

// generator makes random specs of what is hard for YAML, Jinja and shells. A seed makes the same spec again.
type generator struct{ *rand.Rand }

var (
	hardPieces = []string{
		"{", "{{", "{{{", "}}", "{%", "{% raw %}", "%}", "{#", "#}", "{{range .items}}", "{{ .Values.a }}", "${#a[@]}", "{{-", "-}}",
		"{{ hostname }}", "{{ '{{' }}", "'", "''", `"`, `\`, `\n`, "$", "$(id)", "`id`", ": ", "- ", " #", "&a", "*a", "!!str", "|", ">",
		"~", "null", "0123", "---\n", "\n", "\n\n", " \n", "\n ", "\t", " ", "é", "🙂", "あ", "CI_MISSING_JINJA_VAR", "## template: jinja\n",
		"%", "a", "word", strings.Repeat("long ", 30), "EOF\n",
	}
	controlPieces = []string{"\r", "\r\n", "\x01", "\x1b", "\x7f", "\u0085", "\u2028", "\u2029", "\ufeff", "\x00"}
)

func (g generator) pick(pieces []string) string { return pieces[g.IntN(len(pieces))] }

// literal arrives as it was written.
func (g generator) literal(pieces []string) string {
	var out strings.Builder
	for range g.IntN(12) {
		out.WriteString(g.pick(pieces))
	}
	return out.String()
}

// text mixes literals with expressions, unless a brace next to an expression made it another one.
func (g generator) text(pieces []string, expressions []text) text {
	var t text
	for range g.IntN(4) {
		literal := g.literal(pieces)
		if strings.HasSuffix(literal, "{") {
			literal += " "
		}
		e := expressions[g.IntN(len(expressions))]
		t.written += literal + e.written
		t.arrives += literal + e.arrives
	}
	literal := strings.TrimLeft(g.literal(pieces), "}")
	return text{t.written + literal, t.arrives + literal}
}

var expressions = []text{
	{"{{ ds.meta_data.local_hostname }}", computer.Hostname},
	{"{{v1.instance_id}}", computer.InstanceID},
	{"{{ instance_id|upper }}", strings.ToUpper(computer.InstanceID)},
	{"{{ ds['meta_data'][\"local-hostname\"].split('-')[0] }}", "node"},
	{"{{ v1.nothing | default('a {{ b', true) }}", "a {{ b"},
	{"{{ ds.meta_data.odd }}", computer.OddValue},
}

// ids are a user's and a group's.
type ids struct{ user, group uint32 }

type spec struct {
	machine  bootdata.Machine
	files    map[string]text
	modes    map[string]uint32
	owners   map[string]ids
	commands map[string]text
	settings map[string]any
}

func (g generator) spec() spec {
	roles := []bootdata.Role{bootdata.FirstServer, bootdata.JoiningServer, bootdata.Worker}
	s := spec{
		machine: testMachine(roles[g.IntN(len(roles))]), files: map[string]text{}, modes: map[string]uint32{}, owners: map[string]ids{},
		commands: map[string]text{}, settings: map[string]any{"token": "T"},
	}
	s.machine.CAFiles = []bootdata.File{bootdata.SecretFile("/var/lib/rancher/k3s/server/tls/server-ca.key", []byte("key\n"))}
	if s.machine.Hardened = g.IntN(2) == 0; s.machine.Hardened {
		s.machine.Registries, s.machine.Kubelet = []byte("mirrors: {}\n"), []byte(`{"maxPods":200}`)
		s.machine.Proxy.HTTPProxy = "http://user:'\"$(id)@proxy"
	}
	for name, content := range alwaysThere {
		s.addPlain("/root/"+name, content, true)
	}
	pieces := append(append([]string{}, hardPieces...), controlPieces...)
	s.addPlain("/root/large text", g.large(func() []byte { return []byte(g.literal(pieces)) }), true)
	s.addPlain("/root/large binary", g.large(func() []byte { return g.bytes(1000) }), false)
	for i := range 40 {
		g.addFile(&s, g.path(i), pieces)
	}
	for i := range 15 {
		content := g.text(hardPieces, expressions)
		output := fmt.Sprintf("/root/command%d", i)
		s.commands[output] = text{content.written, content.arrives + "\n"}
		command := "cat >" + output + " <<'END OF TEXT'\n" + content.written + "\nEND OF TEXT"
		if g.IntN(2) == 0 {
			s.machine.PreCommands = append(s.machine.PreCommands, command)
		} else {
			s.machine.PostCommands = append(s.machine.PostCommands, command)
		}
	}
	for i := range 15 {
		key, one, other := fmt.Sprintf("setting-%d", i), g.text(hardPieces, expressions), g.text(pieces, expressions)
		s.machine.Config[key] = []string{one.written, other.written}
		s.settings[key] = []any{one.arrives, other.arrives}
	}
	return s
}

// alwaysThere is what no spec may miss by chance. None of it is an expression over the instance data.
var alwaysThere = map[string]string{
	"empty":             "",
	"no final newline":  "a\nb",
	"CRLF":              "a\r\nb\r\n",
	"tabs":              "\ta:\t- b\n",
	"not UTF-8":         "caf\xe9 \xff\xfe\x00",
	"percent":           "100% %20 %s %%\n",
	"YAML":              "---\na: [b, 'c']  # d\n...\n---\n- e: |\n    f\n",
	"expression":        "{{ .Values.image }} {{ hostname }}\n",
	"statement":         "{% if a %}{{ b }}{% endif %}{# c #}\n",
	"jinja's own words": "{% raw %}{{ '{{' }}{% endraw %}\n",
	"shell":             "a \\\n$(b) `c` ${d} \"e\" 'f' \\\\ # !\n",
}

// addPlain adds a file without an expression.
func (s *spec) addPlain(path, content string, rendered bool) {
	s.machine.Files = append(s.machine.Files, bootdata.File{Path: path, Content: []byte(content), Rendered: rendered})
	s.files[path], s.modes[path] = text{content, content}, 0o644
}

// path makes one that no other file has, with anything in its names that a name can have.
func (g generator) path(i int) string {
	name := func() string {
		pieces := append(slices.Clone(hardPieces), "\r", "\x01", "\u2028", "{{ v1.region }}", "*", "-rf")
		const longest = 200
		name := strings.ReplaceAll(g.literal(pieces), "/", "")
		return strings.ToValidUTF8(name[:min(len(name), longest)], "")
	}
	return fmt.Sprintf("/root/%d%s/-%s.", i, name(), name())
}

// owners are what somebody writes, and who that is.
var owners = []struct {
	written string
	ids
}{
	{"daemon:daemon", ids{1, 1}},
	{"daemon", ids{1, 0}},
	{":daemon", ids{0, 1}},
	{"root:daemon", ids{0, 1}},
	{"33:34", ids{33, 34}},
	{"2", ids{2, 0}},
	{"daemon:0", ids{1, 0}},
}

// large makes a content of 200 kB out of pieces.
func (g generator) large(piece func() []byte) string {
	const size = 200_000
	var content []byte
	for len(content) < size {
		content = append(content, piece()...)
	}
	return string(content[:size])
}

func (g generator) bytes(n int) []byte {
	out := make([]byte, n)
	for i := range out {
		out[i] = byte(g.IntN(256))
	}
	return out
}

func (g generator) addFile(s *spec, path string, pieces []string) {
	content := g.text(pieces, expressions)
	file := bootdata.File{Path: path, Content: []byte(content.written), Rendered: true}
	s.modes[path] = 0o644
	switch g.IntN(3) {
	case 0:
		file.Rendered, content.arrives = false, content.written
	case 1:
		random := g.bytes(g.IntN(400))
		file.Content, file.Rendered, content.arrives = random, false, string(random)
	}
	if g.IntN(3) == 0 {
		s.modes[path] = 0o400 | g.Uint32N(0o10000)
		file.Permissions = fmt.Sprintf("%0*o", 4+g.IntN(2), s.modes[path])
	}
	if g.IntN(3) == 0 {
		owner := owners[g.IntN(len(owners))]
		file.Owner, s.owners[path] = owner.written, owner.ids
	}
	s.files[path] = content
	s.machine.Files = append(s.machine.Files, file)
	if g.IntN(4) == 0 {
		more := g.text(pieces, expressions)
		s.machine.Files = append(s.machine.Files, bootdata.File{
			Path: path, Content: []byte(more.written), Rendered: true, Append: true,
			Permissions: file.Permissions, Owner: file.Owner,
		})
		s.files[path] = text{"", content.arrives + more.arrives}
	}
}

// seeds are those of the specs to try: one that is always the same, and others. PROPERTY_SPECS says how many.
func seeds() []uint64 {
	if given, err := strconv.ParseUint(os.Getenv("CLOUDCONFIG_SEED"), 10, 64); err == nil {
		return []uint64{given}
	}
	all := []uint64{1}
	count, _ := strconv.Atoi(os.Getenv("PROPERTY_SPECS"))
	for next := uint64(time.Now().UnixNano()) &^ 1; len(all) < max(count, 2); next++ {
		all = append(all, next)
	}
	return all
}

// Bytes in are bytes on disk, whatever they are, but for the expressions over the instance data. Every second document
// is compressed as a whole.
func TestProperty_BytesArrive(t *testing.T) {
	var specs, files, commands, settings int
	for _, seed := range seeds() {
		t.Run(fmt.Sprintf("CLOUDCONFIG_SEED=%d", seed), func(t *testing.T) {
			s := generator{rand.New(rand.NewPCG(seed, 0))}.spec()
			c := computer.New(t)
			c.Command("sysctl", "")
			if os.Getuid() != 0 {
				dropOwners(&s)
			}
			data := render(t, s.machine)
			if seed%2 == 0 {
				var err error
				data, err = RenderCompressed(s.machine)
				require.NoError(t, err)
			}
			log, err := c.Boot(data)
			require.NoError(t, err, log)
			require.True(t, c.Exists(computer.Sentinel), log)
			s.requireArrived(t, c)
			schema, err := c.Run("cloud-init", "schema", "--system")
			require.NoError(t, err, schema)
			require.Contains(t, schema, "Valid cloud-config: system userdata")
			specs, files, commands, settings = specs+1, files+len(s.files), commands+len(s.commands), settings+2*len(s.settings)-2
		})
	}
	t.Logf("booted %d specs: %d files with their owners and modes, %d commands and %d settings arrived byte for byte, all schemas valid",
		specs, files, commands, settings)
}

func (s spec) requireArrived(t *testing.T, c *computer.Computer) {
	t.Helper()
	for path, content := range s.files {
		require.True(t, content.arrives == c.Read(path), "the content of %s is another", path)
		info, err := os.Stat(c.Path(path))
		require.NoError(t, err)
		stat := info.Sys().(*syscall.Stat_t)
		require.Equal(t, s.modes[path], stat.Mode&0o7777, "%q has mode %o", path, stat.Mode)
		if os.Getuid() == 0 {
			require.Equal(t, s.owners[path], ids{stat.Uid, stat.Gid}, "%q", path)
		}
	}
	for path, content := range s.commands {
		require.Equal(t, content.arrives, c.Read(path), path)
	}
	var settings map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(c.Read(bootdata.ConfigPath)), &settings))
	require.Equal(t, s.settings, settings)
}

// dropOwners is for user namespaces with one user, in which no file can be given away.
func dropOwners(s *spec) {
	for i := range s.machine.Files {
		s.machine.Files[i].Owner = ""
	}
	clear(s.owners)
}

// The same spec without any expression needs no template, and is valid to cloud-init's own eye.
func TestProperty_SchemaIsValid(t *testing.T) {
	if _, err := exec.LookPath("cloud-init"); err != nil {
		t.Skip("cloud-init isn't installed: apt-get install cloud-init")
	}
	m := testMachine(bootdata.FirstServer)
	m.CAFiles = []bootdata.File{{Path: "/var/lib/rancher/k3s/server/tls/server-ca.crt", Content: bytes.Repeat([]byte("line\n"), 500)}}
	m.Files = []bootdata.File{{Path: "/binary", Content: []byte{0, 255}, Owner: "a:b", Append: true, Permissions: "0600"}, {Path: "/empty"}}
	m.PreCommands = []string{"echo a\necho b"}
	m.Config = k3s.Config{"tls-san": []string{"a"}, "cluster-init": true}
	path := filepath.Join(t.TempDir(), "user-data")
	require.NoError(t, os.WriteFile(path, render(t, m), 0o600))
	out, err := exec.Command("cloud-init", "schema", "--config-file", path).CombinedOutput()
	require.NoError(t, err, string(out))
}

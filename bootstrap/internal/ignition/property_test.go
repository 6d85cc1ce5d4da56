package ignition

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/capk3s/capk3s/bootstrap/internal/bootdata"
)

// commandOf returns the commands that systemd runs for a unit, as one of a shell.
func commandOf(unit string) string {
	var commands []string
	for _, line := range strings.Split(unit, "\n") {
		for _, key := range []string{"ExecStartPre=", "ExecStart="} {
			if command, found := strings.CutPrefix(line, key); found {
				commands = append(commands, command)
			}
		}
	}
	return strings.Join(commands, " && ")
}

// Bytes in are the bytes that Ignition reads, with their owner and mode, whatever they are.
func TestProperty_BytesArrive(t *testing.T) {
	const files = 400
	validate := ignitionValidate(t)
	seeds := []uint64{1}
	count, _ := strconv.Atoi(os.Getenv("PROPERTY_SPECS"))
	for next := uint64(time.Now().UnixNano()); len(seeds) < max(count, 2); next++ {
		seeds = append(seeds, next)
	}
	if given, err := strconv.ParseUint(os.Getenv("IGNITION_SEED"), 10, 64); err == nil {
		seeds = []uint64{given}
	}
	arrived := 0
	for _, seed := range seeds {
		t.Run(fmt.Sprintf("IGNITION_SEED=%d", seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			m := testMachine(bootdata.Worker)
			for i := range files {
				m.Files = append(m.Files, randomFile(random, fmt.Sprintf("/root/%d %%20 é'\"", i)))
			}
			for name, content := range map[string][]byte{
				"empty": nil, "CRLF": []byte("a\r\nb\r\n"), "not UTF-8": []byte("caf\xe9 \xff\xfe\x00"), "jinja": []byte("{{ a }} {% b %}"),
				"large text":   []byte(strings.Repeat("line {{ a }} %\r\n", 200_000/16)),
				"large binary": randomBytes(random, 200_000),
			} {
				m.Files = append(m.Files, bootdata.File{Path: "/root/" + name, Content: content})
			}
			data, err := Render(m, "")
			require.NoError(t, err)
			validate(t, data)
			config := parse(t, data)
			for _, want := range m.Files {
				got := fileAt(t, config, want.Path)
				resource := got.Contents
				if want.Append {
					require.Len(t, got.Append, 1)
					resource = got.Append[0]
				}
				require.True(t, bytes.Equal(want.Content, contentOf(t, resource)), "the content of %s is another", want.Path)
				if want.Permissions != "" {
					require.Equal(t, want.Permissions, fmt.Sprintf("%04o", *got.Mode))
				}
				if want.Owner != "" {
					require.Equal(t, want.Owner, who(got.User.Name, got.User.ID)+":"+who(got.Group.Name, got.Group.ID))
				}
			}
			arrived += len(m.Files)
		})
	}
	t.Logf("%d configs are valid, %d files arrived byte for byte", len(seeds), arrived)
}

// who is the name, or the number, of a user or a group.
func who(name *string, id *int) string {
	if name != nil {
		return *name
	}
	return strconv.Itoa(*id)
}

func randomBytes(random *rand.Rand, n int) []byte {
	out := make([]byte, n)
	for i := range out {
		out[i] = byte(random.IntN(256))
	}
	return out
}

// ignitionValidate builds the program ignition-validate and returns what runs it: a warning is a failure too.
func ignitionValidate(t *testing.T) func(*testing.T, []byte) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "ignition-validate")
	out, err := exec.Command("go", "build", "-o", program, "github.com/coreos/ignition/v2/validate").CombinedOutput()
	require.NoError(t, err, string(out))
	return func(t *testing.T, config []byte) {
		t.Helper()
		validate := exec.Command(program, "-")
		validate.Stdin = bytes.NewReader(config)
		out, err := validate.CombinedOutput()
		require.NoError(t, err, string(out))
		require.Empty(t, string(out))
	}
}

func randomFile(random *rand.Rand, path string) bootdata.File {
	file := bootdata.File{Path: path, Append: random.IntN(4) == 0}
	pieces := []string{"", "'", `"`, `\`, "%", "%20", "#", "{{range .i}}", "\t", "\r\n", "\n", "\x00", "\xff", "é", "---\n", strings.Repeat("long ", 200)}
	for range random.IntN(20) {
		file.Content = append(file.Content, pieces[random.IntN(len(pieces))]...)
	}
	if random.IntN(2) == 0 {
		file.Permissions = fmt.Sprintf("%04o", random.IntN(0o1000))
	}
	if random.IntN(2) == 0 {
		owners := []string{"core:docker", "33:34", "core:0"}
		file.Owner = owners[random.IntN(len(owners))]
	}
	return file
}

package ignition

import (
	"fmt"
	"math/rand/v2"
	"os"
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
	seeds := []uint64{1, uint64(time.Now().UnixNano())}
	if given, err := strconv.ParseUint(os.Getenv("IGNITION_SEED"), 10, 64); err == nil {
		seeds = []uint64{given}
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprintf("IGNITION_SEED=%d", seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			m := testMachine(bootdata.Worker)
			for i := range files {
				m.Files = append(m.Files, randomFile(random, fmt.Sprintf("/root/%d %%20 é'\"", i)))
			}
			data, err := Render(m, "")
			require.NoError(t, err)
			config := parse(t, data)
			for _, want := range m.Files {
				got := fileAt(t, config, want.Path)
				resource := got.Contents
				if want.Append {
					require.Len(t, got.Append, 1)
					resource = got.Append[0]
				}
				require.Equal(t, string(want.Content), string(contentOf(t, resource)), want.Path)
				if want.Permissions != "" {
					require.Equal(t, want.Permissions, fmt.Sprintf("%04o", *got.Mode))
				}
				if want.Owner != "" {
					require.Equal(t, want.Owner, *got.User.Name+":"+*got.Group.Name)
				}
			}
			t.Logf("%d files arrived byte for byte", len(m.Files))
		})
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
		file.Owner = "core:docker"
	}
	return file
}

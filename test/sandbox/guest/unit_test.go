package guest

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSplitWords(t *testing.T) {
	for name, tc := range map[string]struct {
		line string
		want []string
		fail bool
	}{
		"plain":                 {line: "/bin/k3s  server", want: []string{"/bin/k3s", "server"}},
		"single quotes":         {line: `k3s '--a=b c'`, want: []string{"k3s", "--a=b c"}},
		"quotes inside a word":  {line: `A="b c"d`, want: []string{"A=b cd"}},
		"escaped quote":         {line: `'it'\''s'`, want: []string{"it's"}},
		"empty word":            {line: `a ''`, want: []string{"a", ""}},
		"backslash in quotes":   {line: `'a\b'`, want: []string{`a\b`}},
		"unbalanced":            {line: `'a`, fail: true},
		"backslash at line end": {line: `a\`, fail: true},
	} {
		t.Run(name, func(t *testing.T) {
			words, err := splitWords(tc.line)
			if tc.fail {
				require.Error(t, err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.want, words)
		})
	}
}

func TestExpandWords(t *testing.T) {
	env := map[string]string{"ARGS": "--a --b", "ONE": "1"}
	got := expandWords([]string{"$ARGS", "x${ONE}y", "$NOPE", "${", "a$ARGS"}, env)
	require.Equal(t, []string{"--a", "--b", "x1y", "${", "a$ARGS"}, got)
}

func TestLoadUnit_AppliesDropInsInOrder(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "k3s.service", `
[Unit]
Wants=k3s-node.service
[Service]
Type=notify
Environment=A=1 "B=two words"
ExecStart=/bin/k3s \
    server
RestartSec=5s
Restart=always
[Install]
WantedBy=multi-user.target
`)
	write(t, dir, "k3s.service.d/20-last.conf", "[Service]\nRestartSec=2min\nEnvironment=A=3\n")
	write(t, dir, "k3s.service.d/10-first.conf", "[Service]\nExecStart=\nExecStart=/bin/other %p 100%%\nExecStartPre=-/bin/may-fail\nEnvironment=A=2\n")

	unit, err := loadUnit(dir, "k3s.service")
	require.NoError(t, err)
	require.Equal(t, []Command{{Words: []string{"/bin/other", "k3s", "100%"}}}, unit.Start)
	require.Equal(t, []Command{{Words: []string{"/bin/may-fail"}, MayFail: true}}, unit.StartPre)
	require.Equal(t, 2*time.Minute, unit.RestartDelay)
	require.Equal(t, []string{"k3s-node.service"}, unit.Wants)
	require.Equal(t, []string{"multi-user.target"}, unit.WantedBy)

	env, err := unit.environ()
	require.NoError(t, err)
	require.Equal(t, "3", env["A"])
	require.Equal(t, "two words", env["B"])
}

func TestLoadUnit_MissingIsNotExist(t *testing.T) {
	_, err := loadUnit(t.TempDir(), "k3s.service")
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestEnviron_ReadsEnvironmentFiles(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "env", "# comment\nK3S_TOKEN='a b'\nK3S_URL=https://x:6443\n")
	unit := &Unit{EnvironmentFiles: []string{"-" + filepath.Join(dir, "nope"), filepath.Join(dir, "env")}}
	env, err := unit.environ()
	require.NoError(t, err)
	require.Equal(t, "a b", env["K3S_TOKEN"])
	require.Equal(t, "https://x:6443", env["K3S_URL"])

	unit.EnvironmentFiles = []string{filepath.Join(dir, "nope")}
	_, err = unit.environ()
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o755))
}

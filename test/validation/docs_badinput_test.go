package validation

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Each row about bad input says what is said, in words that a test waits for, and names that test.
func TestDocs_BadInputIsWhatTestsSee(t *testing.T) {
	doc, err := os.ReadFile("../../docs/bootstrap.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(string(doc), "## Bad input\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	var source []byte
	for _, text := range testFiles(t) {
		source = append(source, text...)
	}
	rows := 0
	for line := range strings.Lines(section) {
		cells := strings.Split(line, " | ")
		if len(cells) != 4 || strings.HasPrefix(line, "| what is wrong") {
			continue
		}
		rows++
		said := regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[2], -1)
		assert.NotEmpty(t, said, line)
		for _, words := range said {
			assert.Truef(t, bytes.Contains(source, []byte(words[1])), "no test waits for %q", words[1])
		}
		assert.Regexp(t, "`Test|the same", cells[3], line)
	}
	require.Greater(t, rows, 20)
}

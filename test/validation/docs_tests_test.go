package validation

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	// quoted is a name in the docs: of a folder, or of a test, whose beginning "..." may stand for.
	quoted = regexp.MustCompile("`([^` ]+)`")

	testName = regexp.MustCompile(`^(Test[A-Z]\w*|\.\.\._\w+)$`)

	testFunc = regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`)
)

// A name of a test in the docs promises that the test is there, in the folder that is named before it.
func TestDocs_NameOnlyTestsThatExist(t *testing.T) {
	folders := foldersOfTests(t)
	docs, err := filepath.Glob("../../docs/*.md")
	require.NoError(t, err)
	named := 0
	for _, doc := range docs {
		for _, line := range readLines(t, doc) {
			for name, in := range testsNamedIn(line) {
				named++
				if len(in) == 0 {
					assert.NotEmptyf(t, folders[name], "%s, named in %s", name, filepath.Base(doc))
				}
				for _, folder := range in {
					assert.Containsf(t, folders[name], folder, "%s, named in %s", name, filepath.Base(doc))
				}
			}
		}
	}
	require.Greater(t, named, 100)
}

// Every row of the tables names a test, or says why there is none.
func TestDocs_NameATestForEachRow(t *testing.T) {
	for doc, heading := range map[string]string{"features.md": "feature", "behaviours.md": "behaviour", "custody.md": "fault"} {
		rows, table := 0, ""
		for _, line := range readLines(t, filepath.Join("../../docs", doc)) {
			cells := strings.Split(line, "|")
			switch {
			case len(cells) < 3:
				table = ""
			case table == "":
				table = strings.Trim(line, "| ")
			case !strings.Contains(line, "---") && strings.Contains(table, heading):
				rows++
				says := strings.Contains(line, "doesn't apply") || strings.Contains(line, "every case looks")
				assert.Truef(t, len(testsNamedIn(line)) > 0 || says, "%s: %s", doc, line)
			}
		}
		require.Greaterf(t, rows, 10, doc)
	}
}

// testsNamedIn returns the tests that a line names, each with the folders that were named last before it. Several
// folders with nothing but commas between them have the same tests.
func testsNamedIn(line string) map[string][]string {
	tests := map[string][]string{}
	var folders []string
	beginning, end, wasFolder := "", 0, false
	for _, at := range quoted.FindAllStringSubmatchIndex(line, -1) {
		name, gap := line[at[2]:at[3]], line[end:at[0]]
		end = at[1]
		if !testName.MatchString(name) {
			if !isFolder(name) {
				wasFolder = false
				continue
			}
			if !wasFolder || gap != ", " {
				folders = nil
			}
			folders, wasFolder = append(folders, name), true
			continue
		}
		wasFolder = false
		if rest, short := strings.CutPrefix(name, "..."); short {
			name = beginning + rest
		}
		beginning, _, _ = strings.Cut(name, "_")
		tests[name] = folders
	}
	return tests
}

func isFolder(name string) bool {
	info, err := os.Stat(filepath.Join("../..", name))
	return err == nil && info.IsDir()
}

// foldersOfTests are all tests of the project, each with the folders that have one of that name.
func foldersOfTests(t *testing.T) map[string][]string {
	t.Helper()
	folders := map[string][]string{}
	for path, text := range testFiles(t) {
		for _, match := range testFunc.FindAllSubmatch(text, -1) {
			folders[string(match[1])] = append(folders[string(match[1])], filepath.Dir(path))
		}
	}
	return folders
}

// testFiles are all files with tests, by their paths from the top of the repository.
func testFiles(t *testing.T) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	root := os.DirFS("../..")
	require.NoError(t, fs.WalkDir(root, ".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		files[path], err = fs.ReadFile(root, path)
		return err
	}))
	return files
}

func readLines(t *testing.T, path string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return strings.Split(string(text), "\n")
}

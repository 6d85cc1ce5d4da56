package bootdata

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// sentinelDir has the file that tells Cluster API that K3s runs: nobody else may say so.
const sentinelDir = "/run/cluster-api"

// checkPaths refuses files of the user that would change, or run as, what the operator writes in the folder dir and
// elsewhere, and those that can't be written since another one is in the place of their folder. cloud-init writes
// nothing more after such a file.
func checkPaths(files, own []File, dir string) error {
	taken := map[string]bool{joinedPath: true}
	folders := map[string]string{}
	for _, file := range own {
		taken[file.Path] = true
		addFolders(folders, file.Path)
	}
	for _, file := range files {
		addFolders(folders, path.Clean(file.Path))
	}
	for i, file := range files {
		at := path.Clean(file.Path)
		switch {
		case taken[at]:
			return fmt.Errorf("files[%d].path: %s is written by the operator: remove it", i, file.Path)
		case isBelow(at, dir), isBelow(at, sentinelDir):
			return fmt.Errorf("files[%d].path: %s is in a folder of the operator: choose another one", i, file.Path)
		case !isName(at):
			return fmt.Errorf("files[%d].path: a name in it has more than 255 bytes, or a zero byte: no file system takes it", i)
		case folders[at] != "":
			return fmt.Errorf("files[%d].path: %s is the folder of %s, so that it can't be a file: choose another path", i, file.Path, folders[at])
		}
	}
	return nil
}

// addFolders notes all folders above a file.
func addFolders(folders map[string]string, file string) {
	for dir := path.Dir(file); dir != "/" && dir != "."; dir = path.Dir(dir) {
		folders[dir] = file
	}
}

// isName says whether Linux takes all names in a path.
func isName(file string) bool {
	const longest = 255
	return !strings.Contains(file, "\x00") &&
		!slices.ContainsFunc(strings.Split(file, "/"), func(name string) bool { return len(name) > longest })
}

func isBelow(file, dir string) bool {
	return strings.HasPrefix(file, dir+"/")
}

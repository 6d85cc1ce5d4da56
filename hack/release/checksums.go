package release

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
)

// checksums lists the files in the format of sha256sum.
func (f Files) checksums() []byte {
	var list bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(f)) {
		fmt.Fprintf(&list, "%x  %s\n", sha256.Sum256(f[name]), name)
	}
	return list.Bytes()
}

// Package totals tells how much a test run tried.
package totals

import (
	"fmt"
	"os"
	"path/filepath"
)

// Print prints a line. What a package prints that passes, go test shows only when asked to: the line is kept in the
// folder that CAPK3S_TOTALS names, too, for make to show it.
func Print(name, format string, args ...any) {
	line := fmt.Sprintf(name+": "+format+"\n", args...)
	fmt.Print(line)
	folder := os.Getenv("CAPK3S_TOTALS")
	if folder == "" {
		return
	}
	err := os.MkdirAll(folder, 0o755)
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, name), []byte(line), 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "keeping a total:", err)
	}
}

package guest

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Journalctl prints the log of the unit named with -u, the last lines of it
// with -n. Other options are accepted and change nothing.
func Journalctl(args []string, stdout, stderr io.Writer) int {
	unit, last := "", -1
	for i, arg := range args {
		option, value, joined := strings.Cut(arg, "=")
		if !joined && i+1 < len(args) {
			value = args[i+1]
		}
		switch option {
		case "-u", "--unit", "-xu", "-xeu":
			unit = unitName(value)
		case "-n", "--lines":
			if n, err := strconv.Atoi(value); err == nil {
				last = n
			}
		}
	}
	if unit == "" {
		fmt.Fprintln(stderr, "this machine keeps its logs by unit: give one with -u")
		return 1
	}
	data, err := os.ReadFile(filepath.Join(logDir, logName(unit)))
	if err != nil {
		fmt.Fprintln(stdout, "-- No entries --")
		return 0
	}
	lines := strings.SplitAfter(string(data), "\n")
	if last >= 0 && len(lines) > last+1 { // the last element is the empty rest
		lines = lines[len(lines)-last-1:]
	}
	fmt.Fprint(stdout, strings.Join(lines, ""))
	return 0
}

package guest

import (
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
)

// curl's own exit codes.
const (
	curlNoURL     = 2
	curlNoHost    = 6
	curlHTTPError = 22
	curlWrite     = 23
)

// Curl stands in for curl: https://get.k3s.io answers with the install script,
// every other address as a server would that doesn't have the page. A machine
// has no way to the outside, so nothing else could be fetched anyway.
func Curl(args []string, stdout, stderr io.Writer) int {
	target, output, fail, silent := parseCurl(args)
	if target == "" {
		fmt.Fprintln(stderr, "curl: no URL specified!")
		return curlNoURL
	}
	complain := func(code int, format string, a ...any) int {
		if !silent {
			fmt.Fprintf(stderr, "curl: (%d) %s\n", code, fmt.Sprintf(format, a...))
		}
		return code
	}
	address, err := url.Parse(target)
	if err != nil || address.Host == "" {
		return complain(curlNoHost, "Could not resolve host: %s", target)
	}
	if address.Scheme != "https" || address.Host != "get.k3s.io" || strings.Trim(address.Path, "/") != "" {
		if !fail {
			fmt.Fprintln(stdout, "404: Not Found")
			return 0
		}
		return complain(curlHTTPError, "The requested URL returned error: 404")
	}
	script, err := os.ReadFile(InstallScript)
	if err != nil {
		return complain(curlHTTPError, "The requested URL returned error: 500")
	}
	if output == "" || output == "-" {
		_, err = stdout.Write(script)
	} else {
		err = os.WriteFile(output, script, 0o644)
	}
	if err != nil {
		return complain(curlWrite, "Failure writing output to destination")
	}
	return 0
}

// parseCurl knows the options that scripts use; those that take a value are
// listed, so that the value isn't taken for the address.
func parseCurl(args []string) (target, output string, fail, silent bool) {
	takesValue := map[string]bool{
		"--retry": true, "--retry-delay": true, "--retry-max-time": true, "--connect-timeout": true,
		"--max-time": true, "-m": true, "-H": true, "--header": true, "--cacert": true, "-w": true,
		"--write-out": true, "-A": true, "-X": true, "-u": true, "--proto": true,
	}
	showError := false
	for i := 0; i < len(args); i++ {
		arg := args[i]
		switch {
		case arg == "--output" || arg == "-o":
			if i++; i < len(args) {
				output = args[i]
			}
		case arg == "--fail":
			fail = true
		case arg == "--silent":
			silent = true
		case arg == "--show-error":
			showError = true
		case takesValue[arg]:
			i++
		case strings.HasPrefix(arg, "--"):
		case strings.HasPrefix(arg, "-"):
			fail = fail || strings.Contains(arg, "f")
			silent = silent || strings.Contains(arg, "s")
			showError = showError || strings.Contains(arg, "S")
			if strings.HasSuffix(arg, "o") {
				if i++; i < len(args) {
					output = args[i]
				}
			}
		default:
			target = arg
		}
	}
	if target != "" && !strings.Contains(target, "://") {
		target = "http://" + target
	}
	return target, output, fail, silent && !showError
}

package guest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"path/filepath"
	"strconv"
	"strings"
)

// Systemctl is the command in the machine: it hands its arguments to the
// service manager and prints the answer.
func Systemctl(args []string, stdout, stderr io.Writer) int {
	response, err := ask(args)
	if err != nil {
		fmt.Fprintln(stderr, "Failed to connect to bus:", err)
		return 1
	}
	fmt.Fprint(stdout, response.Stdout)
	fmt.Fprint(stderr, response.Stderr)
	return response.Code
}

func ask(args []string) (Response, error) {
	var response Response
	conn, err := net.Dial("unix", Socket)
	if err != nil {
		return response, err
	}
	defer conn.Close()
	if err := json.NewEncoder(conn).Encode(Request{Args: args}); err != nil {
		return response, err
	}
	return response, json.NewDecoder(conn).Decode(&response)
}

// call is a parsed systemctl command line.
type call struct {
	verb       string
	units      []string
	properties []string
	noBlock    bool
	now        bool
	quiet      bool
	value      bool
}

// ignored options change nothing here.
var ignored = map[string]bool{
	"--no-pager": true, "--no-ask-password": true, "--system": true, "--full": true, "-l": true,
	"--force": true, "-f": true, "--no-legend": true, "--plain": true,
}

func parseCall(args []string) (call, error) {
	var c call
	for i := 0; i < len(args); i++ {
		arg := args[i]
		switch {
		case arg == "--no-block":
			c.noBlock = true
		case arg == "--now":
			c.now = true
		case arg == "--quiet" || arg == "-q":
			c.quiet = true
		case arg == "--value":
			c.value = true
		case arg == "-p" || arg == "--property":
			if i++; i == len(args) {
				return c, fmt.Errorf("option requires an argument -- '%s'", arg)
			}
			c.properties = append(c.properties, strings.Split(args[i], ",")...)
		case strings.HasPrefix(arg, "--property="):
			c.properties = append(c.properties, strings.Split(strings.TrimPrefix(arg, "--property="), ",")...)
		case ignored[arg]:
		case strings.HasPrefix(arg, "-"):
			return c, fmt.Errorf("unrecognized option '%s'", arg)
		case c.verb == "":
			c.verb = arg
		default:
			c.units = append(c.units, unitName(arg))
		}
	}
	return c, nil
}

func (m *Manager) systemctl(args []string) Response {
	c, err := parseCall(args)
	if err != nil {
		return Response{Stderr: "systemctl: " + err.Error() + "\n", Code: 1}
	}
	if c.verb == "daemon-reload" || c.verb == "daemon-reexec" {
		if err := m.reload(); err != nil {
			return Response{Stderr: "Failed to reload daemon: " + err.Error() + "\n", Code: 1}
		}
		return Response{}
	}
	handlers := map[string]func(call, string) Response{
		"start": m.start, "restart": m.restart, "try-restart": m.restart, "stop": m.stop,
		"enable": m.enableCall, "disable": m.disableCall, "reset-failed": m.resetFailed,
		"is-active": m.isActive, "is-failed": m.isFailed, "is-enabled": m.isEnabled,
		"show": m.show, "status": m.status,
	}
	handle, ok := handlers[c.verb]
	if !ok {
		return Response{Stderr: "Unknown command verb " + c.verb + ".\n", Code: 1}
	}
	if len(c.units) == 0 {
		return Response{Stderr: "Too few arguments.\n", Code: 1}
	}
	var all Response
	for _, unit := range c.units {
		response := handle(c, unit)
		all.Stdout += response.Stdout
		all.Stderr += response.Stderr
		all.Code = max(all.Code, response.Code)
	}
	if c.quiet {
		all.Stdout = ""
	}
	return all
}

func (m *Manager) start(c call, unit string) Response {
	s, err := m.get(unit)
	if err != nil {
		return notLoaded("start", unit, err)
	}
	return finishJob(c, unit, m.startWith(s))
}

func (m *Manager) restart(c call, unit string) Response {
	s, err := m.get(unit)
	if err != nil {
		return notLoaded("restart", unit, err)
	}
	s.stop()
	return finishJob(c, unit, m.startWith(s))
}

func finishJob(c call, unit string, job *job) Response {
	if c.noBlock {
		return Response{}
	}
	<-job.done
	if job.err == nil {
		return Response{}
	}
	return Response{Code: 1, Stderr: fmt.Sprintf("Job for %s failed because %v.\n"+
		"See \"systemctl status %s\" and \"journalctl -xeu %s\" for details.\n", unit, job.err, unit, unit)}
}

func notLoaded(verb, unit string, err error) Response {
	if errors.Is(err, fs.ErrNotExist) {
		return Response{Code: 5, Stderr: fmt.Sprintf("Failed to %s %s: Unit %s not found.\n", verb, unit, unit)}
	}
	return Response{Code: 1, Stderr: fmt.Sprintf("Failed to %s %s: %v\n", verb, unit, err)}
}

func (m *Manager) stop(c call, unit string) Response {
	s, err := m.get(unit)
	if err != nil {
		return notLoaded("stop", unit, err)
	}
	if c.noBlock {
		go s.stop()
		return Response{}
	}
	s.stop()
	return Response{}
}

func (m *Manager) enableCall(c call, unit string) Response {
	text, err := m.enable(unit)
	if errors.Is(err, fs.ErrNotExist) {
		return Response{Code: 1, Stderr: fmt.Sprintf("Failed to enable unit: Unit file %s does not exist.\n", unit)}
	}
	if err != nil {
		return Response{Code: 1, Stderr: "Failed to enable unit: " + err.Error() + "\n"}
	}
	if c.now {
		response := m.start(c, unit)
		response.Stderr = text + response.Stderr
		return response
	}
	return Response{Stderr: text}
}

func (m *Manager) disableCall(c call, unit string) Response {
	if err := m.disable(unit); err != nil {
		return Response{Code: 1, Stderr: "Failed to disable unit: " + err.Error() + "\n"}
	}
	if c.now {
		return m.stop(c, unit)
	}
	return Response{}
}

func (m *Manager) resetFailed(_ call, unit string) Response {
	s, err := m.get(unit)
	if err != nil {
		return notLoaded("reset failed state of", unit, err)
	}
	s.update(func(st *State) {
		if st.Active == "failed" {
			st.Active, st.Sub, st.Result = "inactive", "dead", "success"
		}
	})
	return Response{}
}

func (m *Manager) state(unit string) State {
	s, err := m.get(unit)
	if err != nil {
		return State{Active: "inactive", Sub: "dead"}
	}
	return s.current()
}

func (m *Manager) isActive(_ call, unit string) Response {
	state := m.state(unit).Active
	if state == "active" {
		return Response{Stdout: state + "\n"}
	}
	return Response{Stdout: state + "\n", Code: 3}
}

func (m *Manager) isFailed(_ call, unit string) Response {
	state := m.state(unit).Active
	if state == "failed" {
		return Response{Stdout: state + "\n"}
	}
	return Response{Stdout: state + "\n", Code: 1}
}

func (m *Manager) isEnabled(_ call, unit string) Response {
	links, err := m.wantedLinks(unit)
	if err != nil || len(links) == 0 {
		return Response{Stdout: "disabled\n", Code: 1}
	}
	return Response{Stdout: "enabled\n"}
}

func (m *Manager) show(c call, unit string) Response {
	state := m.state(unit)
	values := map[string]string{
		"Id": unit, "ActiveState": state.Active, "SubState": state.Sub, "Result": state.Result,
		"MainPID": strconv.Itoa(state.MainPID), "NRestarts": strconv.Itoa(state.Restarts),
		"ExecMainStatus": strconv.Itoa(state.ExitStatus), "LoadState": m.loadState(unit),
	}
	names := c.properties
	if len(names) == 0 {
		names = []string{"Id", "LoadState", "ActiveState", "SubState", "Result", "MainPID", "NRestarts", "ExecMainStatus"}
	}
	var out strings.Builder
	for _, name := range names {
		value, known := values[name]
		switch {
		case !known: // as systemctl: an unknown property prints nothing
		case c.value:
			fmt.Fprintln(&out, value)
		default:
			fmt.Fprintf(&out, "%s=%s\n", name, value)
		}
	}
	return Response{Stdout: out.String()}
}

func (m *Manager) loadState(unit string) string {
	if _, err := m.get(unit); err != nil {
		return "not-found"
	}
	return "loaded"
}

func (m *Manager) status(c call, unit string) Response {
	state := m.state(unit)
	text := fmt.Sprintf("%s\n  Active: %s (%s), %d restarts, last result %s\nMain PID: %d\n     Log: %s\n",
		unit, state.Active, state.Sub, state.Restarts, state.Result, state.MainPID, filepath.Join(m.LogDir, logName(unit)))
	return Response{Stdout: text, Code: m.isActive(c, unit).Code}
}

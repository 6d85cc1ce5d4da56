package guest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// Manager keeps the services of one machine and answers systemctl.
type Manager struct {
	// UnitDir holds the unit files, RunDir the sockets, LogDir the logs.
	UnitDir, RunDir, LogDir string
	// RestartDelay, if not zero, takes the place of every unit's RestartSec, so
	// that tests needn't wait for K3s' five seconds.
	RestartDelay time.Duration

	mu       sync.Mutex
	services map[string]*service
}

// Request is one systemctl command line, without the program's name.
type Request struct {
	Args []string
}

// Response is what systemctl prints and returns.
type Response struct {
	Stdout, Stderr string
	Code           int
}

// Serve answers requests on the manager's socket until the listener is closed.
func (m *Manager) Serve(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go m.answer(conn)
	}
}

func (m *Manager) answer(conn net.Conn) {
	defer conn.Close()
	var request Request
	if err := json.NewDecoder(conn).Decode(&request); err != nil {
		return // the client went away
	}
	_ = json.NewEncoder(conn).Encode(m.systemctl(request.Args)) // likewise
}

// StartEnabled starts every unit that multi-user.target wants, as a boot does.
func (m *Manager) StartEnabled() {
	links, err := filepath.Glob(filepath.Join(m.UnitDir, "multi-user.target.wants", "*.service"))
	if err != nil {
		return // the pattern is constant and well formed
	}
	for _, link := range links {
		if s, err := m.get(filepath.Base(link)); err == nil {
			m.startWith(s)
		}
	}
}

// startWith starts a service and, without waiting for them, the units it wants.
func (m *Manager) startWith(s *service) *job {
	for _, name := range s.loaded().Wants {
		if wanted, err := m.get(name); err == nil {
			wanted.start()
		}
	}
	return s.start()
}

// StopAll stops every service, as a shutdown does.
func (m *Manager) StopAll() {
	m.mu.Lock()
	services := make([]*service, 0, len(m.services))
	for _, s := range m.services {
		services = append(services, s)
	}
	m.mu.Unlock()
	var group sync.WaitGroup
	for _, s := range services {
		group.Go(s.stop)
	}
	group.Wait()
}

// get returns a loaded service, or loads it: changes to unit files of a loaded
// service wait for daemon-reload, as with systemd.
func (m *Manager) get(name string) (*service, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s, ok := m.services[name]; ok {
		return s, nil
	}
	unit, err := loadUnit(m.UnitDir, name)
	if err != nil {
		return nil, err
	}
	s := newService(unit, filepath.Join(m.LogDir, logName(name)), filepath.Join(m.RunDir, "notify"), m.delay(unit))
	if m.services == nil {
		m.services = map[string]*service{}
	}
	m.services[name] = s
	return s, nil
}

func (m *Manager) delay(unit *Unit) time.Duration {
	if m.RestartDelay != 0 {
		return m.RestartDelay
	}
	return unit.RestartDelay
}

// reload reads the unit files again. A running process keeps what it has; its
// next start uses the new text.
func (m *Manager) reload() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, s := range m.services {
		unit, err := loadUnit(m.UnitDir, name)
		if errors.Is(err, fs.ErrNotExist) {
			if s.current().Active == "inactive" {
				delete(m.services, name)
			}
			continue
		}
		if err != nil {
			return err
		}
		s.mu.Lock()
		s.unit, s.restartDelay = unit, m.delay(unit)
		s.mu.Unlock()
	}
	return nil
}

// enable links the unit into its targets; disable takes the links away.
func (m *Manager) enable(name string) (string, error) {
	unit, err := loadUnit(m.UnitDir, name)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for _, target := range unit.WantedBy {
		link := filepath.Join(m.UnitDir, target+".wants", name)
		if _, err := os.Lstat(link); err == nil {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
			return "", fmt.Errorf("enabling %s: %w", name, err)
		}
		if err := os.Symlink(filepath.Join(m.UnitDir, name), link); err != nil {
			return "", fmt.Errorf("enabling %s: %w", name, err)
		}
		fmt.Fprintf(&out, "Created symlink %s → %s.\n", link, filepath.Join(m.UnitDir, name))
	}
	return out.String(), nil
}

func (m *Manager) disable(name string) error {
	links, err := m.wantedLinks(name)
	if err != nil {
		return err
	}
	for _, link := range links {
		if err := os.Remove(link); err != nil {
			return fmt.Errorf("disabling %s: %w", name, err)
		}
	}
	return nil
}

func (m *Manager) wantedLinks(name string) ([]string, error) {
	links, err := filepath.Glob(filepath.Join(m.UnitDir, "*.wants", name))
	if err != nil {
		return nil, fmt.Errorf("looking for links to %s: %w", name, err)
	}
	slices.Sort(links)
	return links, nil
}

// logName is the file name of a unit's log.
func logName(unit string) string {
	return strings.TrimSuffix(unit, ".service") + ".log"
}

// Package machine makes sandbox machines on the host side: a machine is a
// bubblewrap sandbox with its own network namespace, address, hostname and
// writable folders, in which real cloud-init runs the bootstrap data.
//
// All of a machine's state is in its folder, so any program in the same world
// can open and handle it: the provider that made it and the tests that break it.
package machine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Host is where machines are made: folders and a bridge of the world.
type Host struct {
	// Dir holds one folder a machine.
	Dir string
	// LogDir holds one folder of logs a machine, which outlives the machine.
	LogDir string
	// BinDir holds the test programs: sandbox-machine, k3s-emulator,
	// kube-apiserver, kubectl.
	BinDir string
	// AssetsDir, if not empty, holds the kube-apiserver and kubectl that
	// machines run in place of those in BinDir.
	AssetsDir string
	// K3sBinary is a real K3s binary for servers; empty for the emulator.
	K3sBinary string
	// Bridge is the name of the network bridge that machines are plugged into.
	Bridge string
	// Subnet is the bridge's network. The bridge itself has its first address,
	// machines get those that follow.
	Subnet netip.Prefix
	// RestartDelay takes the place of every unit's RestartSec; zero leaves it.
	RestartDelay time.Duration
	// Versions are the K3s releases that exist, as shell patterns; default
	// v1.3[0-9].*+k3s[1-9].
	Versions []string
}

// Config says how a new machine is to be.
type Config struct {
	// Namespace and Name of the machine's object; the name is the hostname.
	Namespace, Name string
	// ProviderID goes into the machine's metadata as provider_id.
	ProviderID string
	// UserData is handed to cloud-init as it is.
	UserData []byte
	// Preinstalled is the K3s version that the machine's image brings along,
	// with the install script in /opt/install.sh; empty for none.
	Preinstalled string
}

// record is what a machine's folder remembers of it.
type record struct {
	Namespace, Name string
	ProviderID      string
	Preinstalled    string
	// Index numbers the machines of a host; address and interface follow from it.
	Index int
	// Address with the subnet's length.
	Address netip.Prefix
}

// ErrNotFound says that there is no such machine.
var ErrNotFound = errors.New("no such machine")

// Create makes the machine's folders and network, without starting it. A
// machine that is there already is returned as it is.
func (h *Host) Create(ctx context.Context, config Config) (*Machine, error) {
	unlock, err := h.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	m, err := h.Open(config.Namespace, config.Name)
	if err == nil || !errors.Is(err, ErrNotFound) {
		return m, err
	}
	index, err := h.freeIndex()
	if err != nil {
		return nil, err
	}
	m = &Machine{host: h, record: record{
		Namespace: config.Namespace, Name: config.Name, ProviderID: config.ProviderID,
		Preinstalled: config.Preinstalled, Index: index, Address: h.address(index),
	}}
	if err := m.makeDisk(config.UserData); err != nil {
		return nil, fmt.Errorf("making the disk of machine %s: %w", m, err)
	}
	if err := m.makeNetwork(ctx); err != nil {
		return nil, fmt.Errorf("making the network of machine %s: %w", m, err)
	}
	// Last, since it is what Open looks for.
	if err := writeJSON(filepath.Join(m.dir(), recordFile), m.record); err != nil {
		return nil, fmt.Errorf("recording machine %s: %w", m, err)
	}
	return m, nil
}

// Open finds a machine by its object's name; the error wraps ErrNotFound if
// there is none.
func (h *Host) Open(namespace, name string) (*Machine, error) {
	m := &Machine{host: h, record: record{Namespace: namespace, Name: name}}
	err := readJSON(filepath.Join(m.dir(), recordFile), &m.record)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s", ErrNotFound, m)
	}
	if err != nil {
		return nil, fmt.Errorf("opening machine %s: %w", m, err)
	}
	return m, nil
}

// List returns all machines of the host.
func (h *Host) List() ([]*Machine, error) {
	records, err := filepath.Glob(filepath.Join(h.Dir, "*", recordFile))
	if err != nil {
		return nil, fmt.Errorf("listing machines: %w", err)
	}
	machines := make([]*Machine, 0, len(records))
	for _, path := range records {
		m := &Machine{host: h}
		if err := readJSON(path, &m.record); err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				continue // deleted meanwhile
			}
			return nil, fmt.Errorf("listing machines: %w", err)
		}
		machines = append(machines, m)
	}
	return machines, nil
}

// lock keeps every other program of the world from making a machine until
// unlock is called: two that chose the same index would cut each other's cable.
func (h *Host) lock() (unlock func(), err error) {
	if err := os.MkdirAll(h.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("locking the host: %w", err)
	}
	file, err := os.OpenFile(filepath.Join(h.Dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("locking the host: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("locking the host: %w", err)
	}
	return func() { _ = file.Close() }, nil
}

func (h *Host) freeIndex() (int, error) {
	machines, err := h.List()
	if err != nil {
		return 0, err
	}
	used := map[int]bool{}
	for _, m := range machines {
		used[m.record.Index] = true
	}
	for index := 1; ; index++ {
		if !used[index] {
			return index, nil
		}
	}
}

// address is the index-th after the bridge's own.
func (h *Host) address(index int) netip.Prefix {
	address := h.Gateway()
	for range index {
		address = address.Next()
	}
	return netip.PrefixFrom(address, h.Subnet.Bits())
}

// Gateway is the bridge's own address.
func (h *Host) Gateway() netip.Addr { return h.Subnet.Masked().Addr().Next() }

func (h *Host) versions() []string {
	if len(h.Versions) == 0 {
		return []string{"v1.3[0-9].*+k3s[1-9]"}
	}
	return h.Versions
}

// ip runs an iproute2 command line, words separated by spaces.
func ip(ctx context.Context, line string) error {
	_, err := output(ctx, "ip", strings.Fields(line)...)
	return err
}

func output(ctx context.Context, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.Bytes(), fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.Bytes(), nil
}

func writeJSON(path string, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o644)
}

func readJSON(path string, value any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, value)
}

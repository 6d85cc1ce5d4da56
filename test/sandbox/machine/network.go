package machine

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

// netns is the name of the machine's network namespace.
func (m *Machine) netns() string { return m.record.Namespace + "_" + m.record.Name }

// port is the machine's end on the bridge.
func (m *Machine) port() string { return "m" + strconv.Itoa(m.record.Index) }

// makeNetwork gives the machine a network namespace with an address of its own.
func (m *Machine) makeNetwork(ctx context.Context) error {
	m.removeNetwork(ctx) // half made by a crashed provider
	ns := m.netns()
	for _, line := range []string{
		"netns add " + ns,
		fmt.Sprintf("link add %s type veth peer name eth0 netns %s", m.port(), ns),
		fmt.Sprintf("link set %s master %s up", m.port(), m.host.Bridge),
		fmt.Sprintf("-n %s link set lo up", ns),
		fmt.Sprintf("-n %s address add %s dev eth0", ns, m.record.Address),
		fmt.Sprintf("-n %s link set eth0 up", ns),
		fmt.Sprintf("-n %s route add default via %s", ns, m.host.Gateway()),
	} {
		if err := ip(ctx, line); err != nil {
			return err
		}
	}
	return nil
}

// removeNetwork takes away what is there of it; the kernel removes the
// machine's end with the bridge's.
func (m *Machine) removeNetwork(ctx context.Context) {
	_ = ip(ctx, "link delete "+m.port())
	_ = ip(ctx, "netns delete "+m.netns())
}

// Cut takes the machine off the network: packets to and from it are lost, as
// with an unplugged cable.
func (m *Machine) Cut(ctx context.Context) error {
	return ip(ctx, "link set "+m.port()+" nomaster")
}

// Join puts a machine that was cut off back on the network.
func (m *Machine) Join(ctx context.Context) error {
	return ip(ctx, "link set "+m.port()+" master "+m.host.Bridge)
}

// pids lists the processes in the machine's network namespace: all of the
// machine's, and the bubblewrap that waits for it.
func (m *Machine) pids(ctx context.Context) ([]int, error) {
	out, err := output(ctx, "ip", "netns", "pids", m.netns())
	if err != nil {
		return nil, err
	}
	var pids []int
	for word := range strings.FieldsSeq(string(out)) {
		pid, err := strconv.Atoi(word)
		if err != nil {
			return nil, fmt.Errorf("reading process list of %s: %w", m, err)
		}
		pids = append(pids, pid)
	}
	return pids, nil
}

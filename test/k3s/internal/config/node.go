package config

import (
	"bufio"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
)

// NodeConfigDir holds the node's password and id.
const NodeConfigDir = "/etc/rancher/node"

// nodeID returns the id kept in a file, which it creates at first.
func nodeID(file string) (string, error) {
	raw, err := os.ReadFile(file)
	if err == nil {
		return strings.TrimSpace(string(raw)), nil
	}
	if !os.IsNotExist(err) {
		return "", err
	}
	id := RandomHex(4)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return "", err
	}
	return id, os.WriteFile(file, []byte(id+"\n"), 0o644)
}

// RandomHex returns n random bytes in hexadecimal.
func RandomHex(n int) string {
	raw := make([]byte, n)
	// crypto/rand.Read never fails; it ends the program instead.
	_, _ = rand.Read(raw)
	return hex.EncodeToString(raw)
}

func parseIPs(flagName string, values []string) ([]net.IP, error) {
	var ips []net.IP
	for _, value := range values {
		ip := net.ParseIP(value)
		if ip == nil {
			return nil, fmt.Errorf("invalid %s: invalid ip format '%s'", flagName, value)
		}
		ips = append(ips, ip)
	}
	return ips, nil
}

// defaultIP is the address of the interface that has the default route, or of
// the first interface that isn't a loopback where there is no default route.
func defaultIP() (net.IP, error) {
	if name := defaultRouteInterface(); name != "" {
		if iface, err := net.InterfaceByName(name); err == nil {
			if ip := firstIPv4(*iface); ip != nil {
				return ip, nil
			}
		}
	}
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	for _, iface := range interfaces {
		if iface.Flags&net.FlagLoopback != 0 || iface.Flags&net.FlagUp == 0 {
			continue
		}
		if ip := firstIPv4(iface); ip != nil {
			return ip, nil
		}
	}
	return nil, errors.New("unable to select an IP from default routes")
}

func defaultRouteInterface() string {
	file, err := os.Open("/proc/net/route")
	if err != nil {
		return ""
	}
	defer func() { _ = file.Close() }()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) > 7 && fields[1] == "00000000" && fields[7] == "00000000" {
			return fields[0]
		}
	}
	return ""
}

func firstIPv4(iface net.Interface) net.IP {
	addrs, err := iface.Addrs()
	if err != nil {
		return nil
	}
	for _, addr := range addrs {
		if network, ok := addr.(*net.IPNet); ok && network.IP.To4() != nil && network.IP.IsGlobalUnicast() {
			return network.IP
		}
	}
	return nil
}

// Package guest is what runs inside a sandbox machine: its init, a small
// service manager with the systemctl and journalctl commands, and a curl that
// knows one address. Together they are just enough of a Linux machine for real
// cloud-init to run real bootstrap data.
//
// The package depends on the standard library alone, since its program is
// started in each machine.
package guest

import _ "embed" // for the install script

// Script is the text of the install script that a machine's curl serves.
//
//go:embed install.sh
var Script []byte

// Paths inside a machine.
const (
	// BinDir holds the test programs, read-only: k3s-emulator, kube-apiserver, kubectl.
	BinDir = "/var/lib/sandbox/bin"
	// RealK3s is the K3s binary that takes the emulator's place as a server; an
	// empty file when there is none.
	RealK3s = "/var/lib/sandbox/k3s"
	// VersionsFile lists the K3s versions that "can be downloaded": shell
	// patterns, one a line.
	VersionsFile = "/var/lib/sandbox/versions"
	// InstallScript is what https://get.k3s.io serves.
	InstallScript = "/var/lib/sandbox/install.sh"
	// Sentinel tells that the bootstrap data has done its work (CAPI contract).
	Sentinel = "/run/cluster-api/bootstrap-success.complete"
	// CloudInitResult is written by cloud-init once all its stages have run.
	CloudInitResult = "/run/cloud-init/result.json"
	// Socket is where the service manager listens, as soon as the machine is up.
	Socket = runDir + "/manager.sock"

	unitDir = "/etc/systemd/system"
	runDir  = "/run/sandbox"
	logDir  = "/var/log"
)

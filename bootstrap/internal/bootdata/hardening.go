package bootdata

import (
	"embed"
	"path"

	"github.com/capk3s/capk3s/pkg/k3s"
)

// kernelSettingsPath is read by the system at each boot, and by the script at the first.
const kernelSettingsPath = "/etc/sysctl.d/90-k3s-cis.conf"

//go:embed hardening
var hardening embed.FS

// hardeningFiles are the files of K3s' guide to the CIS benchmark.
func (m Machine) hardeningFiles() []File {
	files := []File{{Path: kernelSettingsPath, Content: embedded("sysctl.conf")}}
	if m.Role == Worker {
		return files
	}
	dir := m.Config.DataDir()
	return append(files,
		SecretFile(path.Join(dir, k3s.AuditPolicyFile), embedded("audit.yaml")),
		SecretFile(path.Join(dir, k3s.AdmissionFile), embedded("admission.yaml")))
}

// embedded returns a file that is part of the program.
func embedded(name string) []byte {
	content, err := hardening.ReadFile("hardening/" + name)
	if err != nil {
		panic(err)
	}
	return content
}

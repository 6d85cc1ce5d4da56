package bootdata

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/utils/ptr"
)

// airGappedScript is where the install script is by default on a machine that downloads nothing.
const airGappedScript = "/opt/install.sh"

// environment returns what the script reads before anything else: assignments of a shell, one a line. It is empty for
// a machine that is installed in the default way.
func (m Machine) environment() string {
	var lines strings.Builder
	set := func(prefix, name, value string) {
		if value != "" {
			lines.WriteString(prefix + name + "=" + quoted(value) + "\n")
		}
	}
	export := func(name, value string) { set("export ", name, value) }

	m.exportProxy(export)
	install := m.Install
	airGapped := ptr.Deref(install.AirGapped, false)
	if airGapped {
		export("INSTALL_K3S_SKIP_DOWNLOAD", "true")
	}
	export("INSTALL_K3S_ARTIFACT_URL", install.ArtifactURL)
	// What install scripts up to K3s 1.35 read.
	export("GITHUB_URL", strings.TrimSuffix(install.ArtifactURL, "/download"))
	export("CURL_CA_BUNDLE", install.CAFile)
	for _, name := range slices.Sorted(maps.Keys(install.Environment)) {
		export(name, string(install.Environment[name]))
	}

	set("", "boot_script_url", install.ScriptURL)
	set("", "boot_script_sum", install.ScriptSHA256)
	set("", "boot_ca_file", install.CAFile)
	switch {
	case install.ScriptPath != "":
		set("", "boot_script", install.ScriptPath)
	case airGapped:
		set("", "boot_script", airGappedScript)
	}
	return lines.String()
}

// exportProxy exports both spellings, since programs don't agree on one.
func (m Machine) exportProxy(export func(name, value string)) {
	proxy := m.Proxy
	if proxy.HTTPProxy == "" && proxy.HTTPSProxy == "" {
		return
	}
	direct := slices.Concat(proxy.NoProxy, []string{m.Endpoint.Host, "localhost", "127.0.0.1", "::1"})
	for _, variable := range []struct{ name, value string }{
		{"http_proxy", proxy.HTTPProxy}, {"https_proxy", proxy.HTTPSProxy}, {"no_proxy", strings.Join(direct, ",")},
	} {
		export(strings.ToUpper(variable.name), variable.value)
		export(variable.name, variable.value)
	}
}

// quoted returns a word of a shell that means text.
func quoted(text string) string {
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

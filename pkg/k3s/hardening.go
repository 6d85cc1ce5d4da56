package k3s

import (
	"path"
	"slices"
	"strings"
)

// Files that a hardened server's settings name, below the data directory.
const (
	// AuditPolicyFile says what kube-apiserver writes to its audit log.
	AuditPolicyFile = "server/audit.yaml"

	// AdmissionFile configures kube-apiserver's admission plugins.
	AdmissionFile = "server/psa.yaml"

	// AuditLogDir is the folder of the audit log.
	AuditLogDir = "server/logs"
)

// strongCiphers are the cipher suites of TLS 1.2 that the CIS benchmark allows a kubelet.
const strongCiphers = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384," +
	"TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256," +
	"TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305,TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305"

// hardenServer adds what K3s' guide to the CIS benchmark asks of a server. What is set already stays.
func (c Config) hardenServer() {
	c.hardenNode()
	c.fallback("secrets-encryption", true)
	c.addArgs("kube-apiserver-arg",
		"enable-admission-plugins=NodeRestriction,EventRateLimit",
		"admission-control-config-file="+path.Join(c.DataDir(), AdmissionFile),
		"audit-log-path="+path.Join(c.DataDir(), AuditLogDir, "audit.log"),
		"audit-policy-file="+path.Join(c.DataDir(), AuditPolicyFile),
		"audit-log-maxage=30",
		"audit-log-maxbackup=10",
		"audit-log-maxsize=100",
		"service-account-extend-token-expiration=false")
	c.addArgs("kube-controller-manager-arg", "terminated-pod-gc-threshold=100")
}

// hardenNode adds what the guide asks of any node.
func (c Config) hardenNode() {
	c.fallback("protect-kernel-defaults", true)
	c.addArgs("kubelet-arg", "streaming-connection-idle-timeout=5m", "tls-cipher-suites="+strongCiphers)
}

func (c Config) fallback(key string, value any) {
	if _, set := c[key]; !set {
		c[key] = value
	}
}

// addArgs adds flags, as name=value, unless the list has one of that name.
func (c Config) addArgs(key string, flags ...string) {
	list := slices.Clone(c.Strings(key))
	for _, flag := range flags {
		name, _, _ := strings.Cut(flag, "=")
		if !slices.ContainsFunc(list, func(other string) bool { return other == name || strings.HasPrefix(other, name+"=") }) {
			list = append(list, flag)
		}
	}
	c.setList(key, list)
}

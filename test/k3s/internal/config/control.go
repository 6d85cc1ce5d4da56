package config

import (
	"encoding/json"
	"fmt"
	"net"
	"strings"
)

// Critical are the settings that must be the same on all servers; a joining
// server compares them. The cli tag is the name in the warning.
type Critical struct {
	ClusterDNSs           []net.IP     `cli:"cluster-dns"`
	ClusterIPRanges       []*net.IPNet `cli:"cluster-cidr"`
	ClusterDNS            net.IP       `cli:"cluster-dns"`
	ClusterDomain         string       `cli:"cluster-domain"`
	ClusterIPRange        *net.IPNet   `cli:"cluster-cidr"`
	DisableCCM            bool         `cli:"disable-cloud-controller"`
	DisableHelmController bool         `cli:"disable-helm-controller"`
	DisableNPC            bool         `cli:"disable-network-policy"`
	EncryptSecrets        bool         `cli:"secrets-encryption"`
	EncryptProvider       string       `cli:"secrets-encryption-provider"`
	EmbeddedRegistry      bool         `cli:"embedded-registry"`
	FlannelBackend        string       `cli:"flannel-backend"`
	FlannelIPv6Masq       bool         `cli:"flannel-ipv6-masq"`
	FlannelExternalIP     bool         `cli:"flannel-external-ip"`
	EgressSelectorMode    string       `cli:"egress-selector-mode"`
	ServiceIPRange        *net.IPNet   `cli:"service-cidr"`
	ServiceIPRanges       []*net.IPNet `cli:"service-cidr"`
	SupervisorMetrics     bool         `cli:"supervisor-metrics"`
}

// PortRange is a range of ports.
type PortRange struct {
	Base int
	Size int
}

// Control is the server's configuration as /v1-k3s/config serves it.
type Control struct {
	Critical
	AdvertisePort        int
	AdvertiseIP          string
	HTTPSPort            int
	SupervisorPort       int
	APIServerPort        int
	APIServerBindAddress string
	ServiceNodePortRange PortRange
	KubeConfigOutput     string
	KubeConfigMode       string
	KubeConfigGroup      string
	HelmJobImage         string
	// DataDir is the server's part of the data dir.
	DataDir                  string
	KineTLS                  bool
	Disables                 map[string]bool
	DisableAgent             bool
	DisableAPIServer         bool
	DisableControllerManager bool
	DisableETCD              bool
	DisableKubeProxy         bool
	DisableScheduler         bool
	DisableServiceLB         bool
	Rootless                 bool
	ServiceLBNamespace       string
	ExtraAPIArgs             []string
	ExtraControllerArgs      []string
	ExtraCloudControllerArgs []string
	ExtraEtcdArgs            []string
	ExtraSchedulerArgs       []string
	ExtraHelmArgs            []string
	NoLeaderElect            bool
	JoinURL                  string
	IPSECPSK                 string
	DefaultLocalStoragePath  string
	Skips                    map[string]bool
	SystemDefaultRegistry    string
	ClusterInit              bool
	ClusterReset             bool
	ClusterResetRestorePath  string
	MinTLSVersion            string
	CipherSuites             []string
	// ServerNodeName is the node's name without the node id; etcd members are
	// named after it.
	ServerNodeName string
	VLevel         int
	VModule        string
	BindAddress    string
	SANs           []string
	SANSecurity    bool
	PrivateIP      string
}

func newControl(parsed *flags, cfg *Config, baseName string) (*Control, error) {
	critical, err := newCritical(parsed)
	if err != nil {
		return nil, err
	}
	port := parsed.int("https-listen-port", 6443)
	control := &Control{
		Critical:             *critical,
		AdvertisePort:        parsed.int("advertise-port", port),
		AdvertiseIP:          firstOf(parsed.str("advertise-address"), firstIP(cfg.NodeExternalIPs), cfg.NodeIP()),
		HTTPSPort:            port,
		SupervisorPort:       parsed.int("supervisor-port", port),
		APIServerPort:        parsed.int("apiserver-port", port+1),
		APIServerBindAddress: parsed.str("apiserver-bind-address"),
		KubeConfigOutput:     parsed.str("write-kubeconfig"),
		KubeConfigMode:       parsed.str("write-kubeconfig-mode"),
		KubeConfigGroup:      parsed.str("write-kubeconfig-group"),
		HelmJobImage:         parsed.str("helm-job-image"),
		DataDir:              cfg.ServerDir(),
		DisableAgent:         parsed.bool("disable-agent"),
		DisableAPIServer:     parsed.bool("disable-apiserver"),
		DisableETCD:          parsed.bool("disable-etcd"),
		DisableKubeProxy:     parsed.bool("disable-kube-proxy"),
		DisableScheduler:     parsed.bool("disable-scheduler"),
		ServiceLBNamespace:   parsed.str("servicelb-namespace"),
		ExtraAPIArgs:         parsed.list("kube-apiserver-arg"),
		ExtraControllerArgs:  parsed.list("kube-controller-manager-arg"),
		ExtraEtcdArgs:        parsed.list("etcd-arg"),
		ExtraSchedulerArgs:   parsed.list("kube-scheduler-arg"),
		JoinURL:              cfg.JoinURL,
		ClusterInit:          parsed.bool("cluster-init"),
		ServerNodeName:       baseName,
		BindAddress:          parsed.str("bind-address"),
		SANSecurity:          parsed.bool("tls-san-security"),
		PrivateIP:            cfg.NodeIP(),
	}
	control.Disables = disabled(parsed)
	control.Skips = control.Disables
	control.DisableServiceLB = control.Disables["servicelb"]
	if control.ServiceNodePortRange, err = parsePortRange(parsed.str("service-node-port-range")); err != nil {
		return nil, err
	}
	control.SANs = control.subjectNames(parsed.list("tls-san"), cfg)
	return control, nil
}

func newCritical(parsed *flags) (*Critical, error) {
	clusters, err := parseCIDRs("cluster-cidr", parsed.list("cluster-cidr"), "10.42.0.0/16")
	if err != nil {
		return nil, err
	}
	services, err := parseCIDRs("service-cidr", parsed.list("service-cidr"), "10.43.0.0/16")
	if err != nil {
		return nil, err
	}
	dns, err := parseIPs("cluster-dns", parsed.list("cluster-dns"))
	if err != nil {
		return nil, err
	}
	if len(dns) == 0 {
		dns = []net.IP{nthIP(services[0], 10)}
	}
	return &Critical{
		ClusterDNSs:           dns,
		ClusterIPRanges:       clusters,
		ClusterDNS:            dns[0],
		ClusterDomain:         parsed.str("cluster-domain"),
		ClusterIPRange:        clusters[0],
		DisableCCM:            parsed.bool("disable-cloud-controller"),
		DisableHelmController: parsed.bool("disable-helm-controller"),
		DisableNPC:            parsed.bool("disable-network-policy"),
		EncryptSecrets:        parsed.bool("secrets-encryption"),
		EncryptProvider:       parsed.str("secrets-encryption-provider"),
		EmbeddedRegistry:      parsed.bool("embedded-registry"),
		FlannelBackend:        parsed.str("flannel-backend"),
		FlannelIPv6Masq:       parsed.bool("flannel-ipv6-masq"),
		FlannelExternalIP:     parsed.bool("flannel-external-ip"),
		EgressSelectorMode:    parsed.str("egress-selector-mode"),
		ServiceIPRange:        services[0],
		ServiceIPRanges:       services,
		SupervisorMetrics:     parsed.bool("supervisor-metrics"),
	}, nil
}

// disabled are the packaged components that are switched off.
func disabled(parsed *flags) map[string]bool {
	out := map[string]bool{}
	for _, name := range parsed.list("disable") {
		out[name] = true
	}
	if parsed.bool("disable-cloud-controller") {
		out["ccm"] = true
	}
	return out
}

// subjectNames are the names and addresses of the supervisor's certificate.
func (c *Control) subjectNames(extra []string, cfg *Config) []string {
	sans := append([]string{}, extra...)
	sans = append(sans, "127.0.0.1", "::1", "localhost", c.ServerNodeName)
	for _, ip := range append(append([]net.IP{}, cfg.NodeIPs...), cfg.NodeExternalIPs...) {
		sans = append(sans, ip.String())
	}
	sans = append(sans, nthIP(c.ServiceIPRange, 1).String(),
		"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc."+c.ClusterDomain)
	return append(sans, c.AdvertiseIP)
}

// Normalized returns the settings as they look after a trip through JSON, so
// that addresses have one form on both sides of a comparison.
func (c Critical) Normalized() (Critical, error) {
	raw, err := json.Marshal(c)
	if err != nil {
		return Critical{}, err
	}
	var out Critical
	err = json.Unmarshal(raw, &out)
	return out, err
}

func parseCIDRs(flagName string, values []string, def string) ([]*net.IPNet, error) {
	if len(values) == 0 {
		values = []string{def}
	}
	var out []*net.IPNet
	for _, value := range values {
		_, network, err := net.ParseCIDR(value)
		if err != nil {
			return nil, fmt.Errorf("invalid %s %s: %w", flagName, value, err)
		}
		out = append(out, network)
	}
	return out, nil
}

func parsePortRange(value string) (PortRange, error) {
	var from, to int
	if _, err := fmt.Sscanf(strings.TrimSpace(value), "%d-%d", &from, &to); err != nil || to < from {
		return PortRange{}, fmt.Errorf("invalid port range %s", value)
	}
	return PortRange{Base: from, Size: to - from + 1}, nil
}

// nthIP is the network's address plus n; n must be small.
func nthIP(network *net.IPNet, n byte) net.IP {
	ip := append(net.IP{}, network.IP...)
	ip[len(ip)-1] += n
	return ip
}

func firstIP(ips []net.IP) string {
	if len(ips) == 0 {
		return ""
	}
	return ips[0].String()
}

func firstOf(values ...string) string {
	for _, value := range values {
		if value != "" {
			return value
		}
	}
	return ""
}

// String renders the range as kube-apiserver wants it.
func (p PortRange) String() string { return fmt.Sprintf("%d-%d", p.Base, p.Base+p.Size-1) }

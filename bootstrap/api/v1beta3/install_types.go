package v1beta3

// InstallSpec says where K3s comes from. Without it, the script at https://get.k3s.io installs the Machine's version
// from K3s' releases.
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="!has(self.scriptURL) || !has(self.scriptPath)",message="set either scriptURL or scriptPath, not both"
// +kubebuilder:validation:XValidation:rule="!has(self.airGapped) || !self.airGapped || !(has(self.scriptURL) || has(self.artifactURL))",message="airGapped downloads nothing: remove scriptURL and artifactURL, and name the script as scriptPath"
type InstallSpec struct {
	// scriptURL is where the install script is downloaded from. Defaults to https://get.k3s.io, whose script changes.
	// +optional
	// +kubebuilder:validation:MinLength=8
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:Pattern=`^https?://[^\s]+$`
	ScriptURL string `json:"scriptURL,omitempty"`

	// scriptPath is the path of an install script that is on the machine already, in its image or by files.
	// +optional
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^(/[A-Za-z0-9_.-]+)+$`
	ScriptPath string `json:"scriptPath,omitempty"`

	// scriptSHA256 is the checksum of the install script, as 64 hexadecimal digits. A script with another one isn't
	// run. The script itself checks the binary that it downloads.
	// +optional
	// +kubebuilder:validation:MinLength=64
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
	ScriptSHA256 string `json:"scriptSHA256,omitempty"`

	// airGapped says that nothing is downloaded: the install script (scriptPath, by default /opt/install.sh) and a K3s
	// binary of the Machine's version are on the machine already, in its image or by files.
	// +optional
	AirGapped *bool `json:"airGapped,omitempty"`

	// artifactURL is that of a mirror of K3s' releases: the binary of a version is at artifactURL/VERSION/k3s.
	// Defaults to https://github.com/k3s-io/k3s/releases/download.
	// +optional
	// +kubebuilder:validation:MinLength=8
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:Pattern=`^https?://[^\s]+$`
	// +kubebuilder:validation:XValidation:rule="self.endsWith('/download')",message="must end with /download: older install scripts add that part themselves"
	ArtifactURL string `json:"artifactURL,omitempty"`

	// caFile is the path of a file with the certificate authorities that downloads trust, in place of the system's.
	// +optional
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^(/[A-Za-z0-9_.-]+)+$`
	CAFile string `json:"caFile,omitempty"`

	// environment has further variables of the install script, for example INSTALL_K3S_SKIP_SELINUX_RPM.
	// +optional
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=20
	// +kubebuilder:validation:XValidation:rule="self.all(k, k.matches('^INSTALL_K3S_[A-Z0-9_]+$'))",message="must be variables of the install script, INSTALL_K3S_...: K3s' own settings belong into serverConfig and agentConfig"
	// +kubebuilder:validation:XValidation:rule="!self.exists(k, k in ['INSTALL_K3S_VERSION', 'INSTALL_K3S_CHANNEL', 'INSTALL_K3S_COMMIT', 'INSTALL_K3S_PR', 'INSTALL_K3S_EXEC', 'INSTALL_K3S_NAME', 'INSTALL_K3S_TYPE', 'INSTALL_K3S_SKIP_START', 'INSTALL_K3S_SKIP_ENABLE', 'INSTALL_K3S_SKIP_DOWNLOAD', 'INSTALL_K3S_ARTIFACT_URL'])",message="the operator decides version, command, name and start of K3s, and airGapped and artifactURL what is downloaded: remove INSTALL_K3S_VERSION, _CHANNEL, _COMMIT, _PR, _EXEC, _NAME, _TYPE, _SKIP_START, _SKIP_ENABLE, _SKIP_DOWNLOAD and _ARTIFACT_URL"
	Environment map[string]EnvironmentValue `json:"environment,omitempty"`
}

// EnvironmentValue is the value of an environment variable.
// +kubebuilder:validation:MaxLength=512
type EnvironmentValue string

// ProxySpec names the proxies of the machine: for its commands, for the installation, and for K3s with its images.
// +kubebuilder:validation:MinProperties=1
type ProxySpec struct {
	// httpProxy is the proxy of http requests, as a URL.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	HTTPProxy string `json:"httpProxy,omitempty"`

	// httpsProxy is the proxy of https requests, as a URL.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	HTTPSProxy string `json:"httpsProxy,omitempty"`

	// noProxy are the hosts, domains and CIDRs that are reached without a proxy. The control plane endpoint and the
	// machine itself are always among them; K3s adds its pods and Services.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^[^\s,]+$`
	NoProxy []string `json:"noProxy,omitempty"`
}

// IgnitionSpec is about the format ignition.
// +kubebuilder:validation:MinProperties=1
type IgnitionSpec struct {
	// additionalConfig is an Ignition config, in JSON and of version 3.0.0 to 3.4.0, or a Butane config, of fcos up to
	// 1.5.0 or flatcar up to 1.1.0, that the operator's is merged into: disks, users, kernel arguments, further units.
	// Files belong into files.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=65536
	AdditionalConfig string `json:"additionalConfig,omitempty"`
}

package v1beta3

// Encoding says how the content of a file is encoded in the API object.
// +kubebuilder:validation:Enum=base64;gzip;gzip+base64
type Encoding string

const (
	// Base64 content is decoded on the machine.
	Base64 Encoding = "base64"

	// Gzip content is unpacked on the machine; it only makes sense for content from a Secret.
	Gzip Encoding = "gzip"

	// GzipBase64 content is decoded, then unpacked, on the machine.
	GzipBase64 Encoding = "gzip+base64"
)

// File is a file that is written to the machine. Its content arrives byte for byte.
// +kubebuilder:validation:XValidation:rule="!(has(self.content) && has(self.contentFrom))",message="set either content or contentFrom, not both"
// +kubebuilder:validation:XValidation:rule="!has(self.content) || !has(self.encoding) || self.encoding != 'gzip'",message="inline content can't hold raw gzip bytes; use encoding gzip+base64"
type File struct {
	// path is the absolute path of the file; no two files have the same.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.startsWith('/')",message="path must be absolute: start it with a slash"
	// +kubebuilder:validation:XValidation:rule="!self.endsWith('/') && !self.contains('//') && !(self + '/').contains('/./') && !(self + '/').contains('/../')",message="path must be that of a file, without //, /./, /../ or a slash at the end"
	// +kubebuilder:validation:XValidation:rule="self != '/etc/rancher/k3s/config.yaml'",message="the operator writes this file: put settings into serverConfig, agentConfig or their extraConfig"
	Path string `json:"path,omitempty"`

	// owner of the file as user:group, each a name or a number, for example root:root, which is the default.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Owner string `json:"owner,omitempty"`

	// permissions of the file in octal notation, for example "0640". Defaults to "0644" for content and "0600"
	// for contentFrom.
	// +optional
	// +kubebuilder:validation:MinLength=3
	// +kubebuilder:validation:MaxLength=5
	// +kubebuilder:validation:Pattern=`^[0-7]{3,5}$`
	Permissions string `json:"permissions,omitempty"`

	// encoding of content, or of the value that contentFrom names. Omitted: the content is the file.
	// +optional
	Encoding Encoding `json:"encoding,omitempty"`

	// append says whether the content is added to an existing file instead of replacing it.
	// +optional
	Append *bool `json:"append,omitempty"`

	// content of the file. Expressions over cloud-init's instance data, such as
	// {{ ds.meta_data.hostname }}, are rendered on the machine unless encoding is set; every other brace
	// arrives as typed.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=10240
	Content string `json:"content,omitempty"`

	// contentFrom names a source of the content. It is never rendered.
	// +optional
	ContentFrom FileSource `json:"contentFrom,omitempty,omitzero"`
}

// FileSource is a source of a file's content.
type FileSource struct {
	// secret whose value is the content.
	// +required
	Secret SecretFileSource `json:"secret,omitempty,omitzero"`
}

// SecretFileSource names a key of a Secret in the namespace of the KThreesConfig.
type SecretFileSource struct {
	// name of the Secret. Give it the label cluster.x-k8s.io/cluster-name, so that its changes are seen. Tokens,
	// CA keys, kubeconfigs and bootstrap data of clusters are refused.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`

	// key of the Secret's data.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key,omitempty"`
}

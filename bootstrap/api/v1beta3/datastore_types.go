package v1beta3

// DatastoreSpec is a datastore outside of the cluster, in place of the embedded etcd.
// +kubebuilder:validation:XValidation:rule="has(self.endpoint) != has(self.endpointFrom)",message="set either endpoint or endpointFrom"
type DatastoreSpec struct {
	// endpoint is the data source name without a password, for example postgres://k3s@db.example.com:5432/k3s
	// (datastore-endpoint).
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Endpoint string `json:"endpoint,omitempty"`

	// endpointFrom names where the data source name is, if it has a password.
	// +optional
	EndpointFrom FileSource `json:"endpointFrom,omitempty,omitzero"`

	// tlsSecret has the certificates for the connection: ca.crt (datastore-cafile), and tls.crt with tls.key
	// (datastore-certfile, datastore-keyfile).
	// +optional
	TLSSecret SecretReference `json:"tlsSecret,omitempty,omitzero"`
}

// SecretReference names a Secret in the namespace of the KThreesConfig.
type SecretReference struct {
	// name of the Secret. Give it the label cluster.x-k8s.io/cluster-name, so that its changes are seen.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
}

// EtcdSnapshotsSpec is about the snapshots that K3s takes of the embedded etcd.
// +kubebuilder:validation:MinProperties=1
type EtcdSnapshotsSpec struct {
	// disabled switches scheduled snapshots off (etcd-disable-snapshots).
	// +optional
	Disabled *bool `json:"disabled,omitempty"`

	// schedule in cron's notation (etcd-snapshot-schedule-cron). Defaults to "0 */12 * * *".
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Schedule string `json:"schedule,omitempty"`

	// retention is how many snapshots are kept (etcd-snapshot-retention). Defaults to 5.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	Retention int32 `json:"retention,omitempty"`

	// name that those of the snapshots begin with (etcd-snapshot-name). Defaults to etcd-snapshot.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Name string `json:"name,omitempty"`

	// dir is the folder of the snapshots on the machine (etcd-snapshot-dir).
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Dir string `json:"dir,omitempty"`

	// compress compresses snapshots (etcd-snapshot-compress).
	// +optional
	Compress *bool `json:"compress,omitempty"`

	// s3 stores snapshots in a bucket as well (etcd-s3).
	// +optional
	S3 SnapshotS3Spec `json:"s3,omitempty,omitzero"`
}

// SnapshotS3Spec is a bucket for snapshots.
type SnapshotS3Spec struct {
	// bucket is the name of the bucket (etcd-s3-bucket).
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Bucket string `json:"bucket,omitempty"`

	// endpoint of the service, as host or host:port (etcd-s3-endpoint). Defaults to s3.amazonaws.com.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Endpoint string `json:"endpoint,omitempty"`

	// region of the bucket (etcd-s3-region). Defaults to us-east-1.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Region string `json:"region,omitempty"`

	// folder in the bucket (etcd-s3-folder).
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Folder string `json:"folder,omitempty"`

	// retention is how many snapshots are kept in the bucket (etcd-s3-retention). Defaults to 5.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	Retention int32 `json:"retention,omitempty"`

	// bucketLookupType says how the bucket is addressed (etcd-s3-bucket-lookup-type). Defaults to auto.
	// +optional
	// +kubebuilder:validation:Enum=auto;dns;path
	BucketLookupType string `json:"bucketLookupType,omitempty"`

	// proxy of the requests to the service (etcd-s3-proxy).
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	Proxy string `json:"proxy,omitempty"`

	// insecure speaks http to the service (etcd-s3-insecure).
	// +optional
	Insecure *bool `json:"insecure,omitempty"`

	// skipSSLVerify trusts any certificate of the service (etcd-s3-skip-ssl-verify).
	// +optional
	SkipSSLVerify *bool `json:"skipSSLVerify,omitempty"`

	// secret has what the service asks for, by the names of K3s' settings: etcd-s3-access-key, etcd-s3-secret-key,
	// etcd-s3-session-token and etcd-s3-endpoint-ca, the last as PEM. Without it, K3s uses the machine's own rights.
	// +optional
	Secret SecretReference `json:"secret,omitempty,omitzero"`
}

// HasDatastore says whether the servers use a datastore outside of the cluster. Before it had a field, it was named in
// extraConfig.
func (c *ServerConfig) HasDatastore() bool {
	_, extra := c.ExtraConfig["datastore-endpoint"]
	return extra || c.Datastore != DatastoreSpec{}
}

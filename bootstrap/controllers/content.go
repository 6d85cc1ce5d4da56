package controllers

import (
	"context"
	"fmt"
	"path"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
	"github.com/capk3s/capk3s/bootstrap/internal/bootdata"
	"github.com/capk3s/capk3s/pkg/k3s"
)

// contentRetry is how soon a Secret is looked for again that the spec names: one without a cluster's label isn't
// watched.
const contentRetry = 5 * time.Second

// secretDir has the files that settings name and Secrets hold.
const secretDir = "/etc/rancher/k3s/secret"

// content is what the spec says a machine shall have, with what it takes from Secrets.
type content struct {
	// files are the user's.
	files []bootdata.File

	// registries is K3s' registries file; empty if there is none.
	registries []byte

	// settingsFiles are those that settings name.
	settingsFiles []bootdata.File

	// settings are those of K3s that come from Secrets.
	settings k3s.Config
}

// readContent returns a [refusal] as long as a Secret is missing, or holds what can't be used. A worker gets nothing
// that only servers need.
func (r *Reconciler) readContent(ctx context.Context, config *bootstrapv1.KThreesConfig, role bootdata.Role) (*content, error) {
	reader := secretReader{r: r, namespace: config.Namespace}
	c := &content{settings: k3s.Config{}}
	steps := []func(context.Context, secretReader, *bootstrapv1.KThreesConfigSpec) error{c.addFiles, c.addRegistries}
	if role != bootdata.Worker {
		steps = append(steps, c.addDatastore, c.addDatastoreTLS, c.addS3)
	}
	for _, step := range steps {
		if err := step(ctx, reader, &config.Spec); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func (c *content) addFiles(ctx context.Context, reader secretReader, spec *bootstrapv1.KThreesConfigSpec) error {
	for i := range spec.Files {
		file := &spec.Files[i]
		secret, err := reader.value(ctx, file.ContentFrom, fmt.Sprintf("files[%d].contentFrom", i))
		if err != nil {
			return err
		}
		rendered, err := bootdata.FromAPI(file, secret)
		if err != nil {
			return invalid(fmt.Errorf("files[%d]: %w", i, err))
		}
		c.files = append(c.files, rendered)
	}
	return nil
}

func (c *content) addRegistries(ctx context.Context, reader secretReader, spec *bootstrapv1.KThreesConfigSpec) error {
	c.registries = []byte(spec.AgentConfig.Registries.Content)
	source := spec.AgentConfig.Registries.ContentFrom
	if source.Secret.Name == "" {
		return nil
	}
	var err error
	c.registries, err = reader.value(ctx, source, "agentConfig.registries.contentFrom")
	return err
}

func (c *content) addDatastore(ctx context.Context, reader secretReader, spec *bootstrapv1.KThreesConfigSpec) error {
	const field = "serverConfig.datastore.endpointFrom"
	source := spec.ServerConfig.Datastore.EndpointFrom
	if source.Secret.Name == "" {
		return nil
	}
	endpoint, err := reader.value(ctx, source, field)
	if err != nil {
		return err
	}
	text, err := oneLine(endpoint)
	if err != nil {
		return invalid(fmt.Errorf("%s: key %s of Secret %s %w", field, source.Secret.Key, source.Secret.Name, err))
	}
	c.settings["datastore-endpoint"] = text
	return nil
}

func (c *content) addDatastoreTLS(ctx context.Context, reader secretReader, spec *bootstrapv1.KThreesConfigSpec) error {
	const field = "serverConfig.datastore.tlsSecret"
	ref := spec.ServerConfig.Datastore.TLSSecret
	if ref.Name == "" {
		return nil
	}
	secret, err := reader.secret(ctx, ref.Name, field)
	if err != nil {
		return err
	}
	_, hasCA := secret.Data["ca.crt"]
	_, hasCert := secret.Data[corev1.TLSCertKey]
	_, hasKey := secret.Data[corev1.TLSPrivateKeyKey]
	if hasCert != hasKey || !hasCert && !hasCA {
		return waitForSecret("%s: waiting for ca.crt, or tls.crt and tls.key, or all three, in Secret %s", field, ref.Name)
	}
	for _, file := range []struct{ key, setting string }{
		{"ca.crt", "datastore-cafile"}, {corev1.TLSCertKey, "datastore-certfile"}, {corev1.TLSPrivateKeyKey, "datastore-keyfile"},
	} {
		if data, found := secret.Data[file.key]; found {
			c.addSettingsFile(file.setting, path.Join(secretDir, "datastore-"+file.key), data)
		}
	}
	return nil
}

func (c *content) addS3(ctx context.Context, reader secretReader, spec *bootstrapv1.KThreesConfigSpec) error {
	const field = "serverConfig.etcdSnapshots.s3.secret"
	ref := spec.ServerConfig.EtcdSnapshots.S3.Secret
	if ref.Name == "" {
		return nil
	}
	secret, err := reader.secret(ctx, ref.Name, field)
	if err != nil {
		return err
	}
	for _, key := range []string{"etcd-s3-access-key", "etcd-s3-secret-key"} {
		if _, found := secret.Data[key]; !found {
			return waitForSecret("%s: waiting for key %s of Secret %s", field, key, ref.Name)
		}
	}
	for _, key := range []string{"etcd-s3-access-key", "etcd-s3-secret-key", "etcd-s3-session-token"} {
		data, found := secret.Data[key]
		if !found {
			continue
		}
		if c.settings[key], err = oneLine(data); err != nil {
			return invalid(fmt.Errorf("%s: key %s of Secret %s %w", field, key, ref.Name, err))
		}
	}
	if data, found := secret.Data["etcd-s3-endpoint-ca"]; found {
		c.addSettingsFile("etcd-s3-endpoint-ca", path.Join(secretDir, "etcd-s3-ca.crt"), data)
	}
	return nil
}

// addSettingsFile makes a file that only root may read, and the setting that names it.
func (c *content) addSettingsFile(setting, path string, data []byte) {
	c.settings[setting] = path
	c.settingsFiles = append(c.settingsFiles, bootdata.SecretFile(path, data))
}

// secretsOf returns the names of the Secrets that a spec names.
func secretsOf(spec *bootstrapv1.KThreesConfigSpec) []string {
	names := []string{
		spec.AgentConfig.Registries.ContentFrom.Secret.Name,
		spec.ServerConfig.Datastore.EndpointFrom.Secret.Name,
		spec.ServerConfig.Datastore.TLSSecret.Name,
		spec.ServerConfig.EtcdSnapshots.S3.Secret.Name,
	}
	for i := range spec.Files {
		names = append(names, spec.Files[i].ContentFrom.Secret.Name)
	}
	return names
}

// secretReader reads the Secrets that a spec names.
type secretReader struct {
	r         *Reconciler
	namespace string
}

// secret returns a [refusal] while there is none of that name.
func (s secretReader) secret(ctx context.Context, name, field string) (*corev1.Secret, error) {
	return s.read(ctx, name, "", field)
}

// value returns nil for a source that names nothing, and a [refusal] while what it names isn't there.
func (s secretReader) value(ctx context.Context, source bootstrapv1.FileSource, field string) ([]byte, error) {
	name, key := source.Secret.Name, source.Secret.Key
	if name == "" {
		return nil, nil
	}
	field += ".secret"
	secret, err := s.read(ctx, name, key, field)
	if err != nil {
		return nil, err
	}
	value, found := secret.Data[key]
	if !found {
		return nil, waitForSecret("%s: waiting for key %s of Secret %s", field, key, name)
	}
	return value, nil
}

// read returns a Secret for the sake of a key, or of all if that is empty.
func (s secretReader) read(ctx context.Context, name, key, field string) (*corev1.Secret, error) {
	secret, err := s.r.readSecret(ctx, client.ObjectKey{Namespace: s.namespace, Name: name})
	if apierrors.IsNotFound(err) {
		return nil, waitForSecret("%s: waiting for Secret %s", field, name)
	}
	if err != nil {
		return nil, err
	}
	if isKey(secret, key) {
		return nil, refuse(bootstrapv1.InvalidConfigReason, "spec.%s: Secret %s holds keys of a cluster, of which a machine may get none in "+
			"this way: take the content from another Secret, or %s of this one", field, name, publicKey)
	}
	return secret, nil
}

func waitForSecret(format string, args ...any) *refusal {
	wait := waitFor(bootstrapv1.WaitingForSecretReason, "spec."+format, args...)
	wait.again = contentRetry
	return wait
}

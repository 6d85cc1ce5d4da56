package world

import (
	"context"
	"fmt"
	"net"
	"path/filepath"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// veleroNamespace holds Velero's objects.
const veleroNamespace = "velero"

// veleroObjects are what an installation has besides the server. The folder of
// backups is left to fill in. Its phase is there from the start, since a server
// that hasn't looked yet takes another minute to see what backups there are. The
// Deployment, which the server looks up at the end of a restore, runs nothing.
const veleroObjects = `apiVersion: v1
kind: Namespace
metadata: {name: velero}
---
apiVersion: velero.io/v1
kind: BackupStorageLocation
metadata: {namespace: velero, name: default}
spec:
  default: true
  provider: capk3s.io/folder
  objectStorage: {bucket: backups}
  config: {folder: %q}
  backupSyncPeriod: 1s
status: {phase: Available}
---
apiVersion: apps/v1
kind: Deployment
metadata: {namespace: velero, name: velero}
spec:
  replicas: 0
  selector: {matchLabels: {deploy: velero}}
  template:
    metadata: {labels: {deploy: velero}}
    spec: {containers: [{name: velero, image: velero}]}
`

// StartVelero installs Velero and starts its server. All management clusters of
// a world keep their backups in one place.
func (m *Management) StartVelero(ctx context.Context) (*Process, error) {
	crds, err := manifest("velero/v*/crds.yaml")
	if err != nil {
		return nil, err
	}
	if _, err := m.Kubectl(ctx, "apply", "--server-side", "-f", crds); err != nil {
		return nil, err
	}
	if _, err := m.Kubectl(ctx, "wait", "--for=condition=Established", "crd", "--all"); err != nil {
		return nil, err
	}
	folder := filepath.Join(m.world.Dir, "backups")
	if err := writeFiles(folder, nil); err != nil {
		return nil, err
	}
	if err := m.Apply(ctx, fmt.Appendf(nil, veleroObjects, folder)); err != nil {
		return nil, err
	}
	plugin, err := Program("velero-plugins/velero-plugin-folder")
	if err != nil {
		return nil, err
	}
	kubeconfig, err := m.writeKubeconfig("velero", administrators)
	if err != nil {
		return nil, err
	}
	return m.start(ctx, "velero", "velero", nil, []string{
		"server", "--kubeconfig=" + kubeconfig, "--namespace=" + veleroNamespace, "--plugin-dir=" + filepath.Dir(plugin),
		"--store-validation-frequency=1s", "--metrics-address=" + net.JoinHostPort(m.options.Address, "8085"),
		"--profiler-address=" + net.JoinHostPort(m.options.Address, "6060"),
	}, func(ctx context.Context) error {
		phase, err := m.VeleroPhase(ctx, "BackupStorageLocation", "default")
		if err == nil && phase != "Available" {
			err = fmt.Errorf("the place of backups is %q", phase)
		}
		return err
	})
}

// VeleroPhase is the phase that an object of Velero's is in; empty at first.
func (m *Management) VeleroPhase(ctx context.Context, kind, name string) (string, error) {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(schema.GroupVersionKind{Group: "velero.io", Version: "v1", Kind: kind})
	if err := m.Client.Get(ctx, client.ObjectKey{Namespace: veleroNamespace, Name: name}, object); err != nil {
		return "", fmt.Errorf("reading %s %s: %w", kind, name, err)
	}
	phase, _, err := unstructured.NestedString(object.Object, "status", "phase")
	return phase, err
}

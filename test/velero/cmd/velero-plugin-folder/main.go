// Command velero-plugin-folder is a plugin of Velero that keeps backups in a folder.
package main

import (
	"github.com/sirupsen/logrus"
	"github.com/vmware-tanzu/velero/pkg/plugin/framework"
)

// name of the provider, as a BackupStorageLocation gives it.
const name = "capk3s.io/folder"

func main() {
	framework.NewServer().
		RegisterObjectStore(name, func(logrus.FieldLogger) (any, error) { return &store{}, nil }).
		Serve()
}

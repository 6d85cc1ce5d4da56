//go:build tools

// Package velero pins the Velero that the tests run.
package velero

import _ "github.com/vmware-tanzu/velero/cmd/velero"

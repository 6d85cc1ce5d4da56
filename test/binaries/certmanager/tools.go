//go:build tools

// Package certmanager pins the cert-manager whose CRDs clusterctl looks for.
package certmanager

import (
	_ "github.com/cert-manager/cert-manager/pkg/apis/certmanager"
)

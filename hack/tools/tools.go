//go:build tools

// Package tools pins the programs that generate code, manifests and documents.
package tools

import (
	_ "github.com/elastic/crd-ref-docs"
	_ "sigs.k8s.io/controller-tools/cmd/controller-gen"
)

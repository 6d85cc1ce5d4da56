//go:build tools

// Package capi pins the Cluster API programs that the tests run.
package capi

import (
	_ "sigs.k8s.io/cluster-api/cmd/clusterctl"
	_ "sigs.k8s.io/cluster-api/core"
)

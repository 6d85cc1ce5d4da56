//go:build tools

// Package etcd pins the etcd server that the tests run.
package etcd

import (
	_ "go.etcd.io/etcd/server/v3"
)

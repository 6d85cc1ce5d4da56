// Package controllers reconciles KThreesControlPlanes.
//
// A reconcile has four steps. It reads everything it needs into a scope (scope.go, workload.go), keeps custody of
// the token, the certificate authorities and the kubeconfig (custody.go), decides with pure functions what to
// write (plan*.go), writes it (act.go, machines.go, etcd.go), and reports status (status*.go, conditions.go).
package controllers

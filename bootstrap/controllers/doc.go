// Package controllers holds the bootstrap provider: it turns a KThreesConfig into the Secret with a machine's
// bootstrap data. It reads the cluster's token and certificate authorities and can create or change neither.
package controllers

// Package release makes the files of a release, as clusterctl expects them in a repository. The same source and
// version give the same bytes, on any machine.
package release

// Package peer runs the end-to-end specs that Cluster API publishes for its providers, in the test world.
// docs/peer-specs.md says which of them.
package peer

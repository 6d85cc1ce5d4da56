// Package ignition renders the bootstrap data of a machine as an Ignition config, for Flatcar Container Linux and
// Fedora CoreOS: the files that K3s needs to find on the disk, and one unit that runs the script once.
package ignition

// Package cloudconfig renders the bootstrap data of a machine as cloud-init's cloud-config. It uses write_files and
// runcmd alone: the files are what K3s needs to find on the disk and one script, which runcmd starts.
package cloudconfig

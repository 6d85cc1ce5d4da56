// Package conformance holds a K3s server to what real K3s servers were seen to
// do. It runs against the emulator, or, with K3S_BINARY=/path/to/k3s, against a
// real K3s, whose servers run with --disable-agent.
//
// The tests have the build tag "conformance". They open a world of their own:
// user (unless run by root), network, mount and pid namespaces that end with
// the test process, so that no port, file or process of the host is touched.
// They need util-linux and iproute2.
package conformance

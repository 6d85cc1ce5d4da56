// Package bootdata says what a machine must find on its disk, and then run once, to become a K3s node. How that is
// brought to the machine is the matter of the packages cloudconfig and ignition.
package bootdata

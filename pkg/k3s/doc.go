// Package k3s holds what K3s is to a control plane that manages it: the forms of its tokens, the settings of its
// config.yaml, its versions, and the supervisor's API.
package k3s

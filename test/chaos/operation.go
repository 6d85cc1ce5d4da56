// Package chaos decides at random what befalls a cluster next. It only decides:
// what it returns follows from a cluster's state and the random numbers alone,
// and whoever asks does it.
package chaos

import (
	"fmt"
	"time"
)

// Kind of operation.
type Kind string

// The kinds of operation.
const (
	// Scale changes the number of servers or workers.
	Scale Kind = "scale"
	// Upgrade raises the version, servers first.
	Upgrade Kind = "upgrade"
	// KillServer pulls a server's plug for good; a MachineHealthCheck has it replaced.
	KillServer Kind = "kill server"
	// FreezeServer stops all processes of a server for a while.
	FreezeServer Kind = "freeze server"
	// CutServer takes a server off the network for a while.
	CutServer Kind = "cut server"
	// DeleteServer deletes a server's Machine, as a human would with kubectl.
	DeleteServer Kind = "delete server"
	// DeleteConfig deletes a server's KThreesConfig, and then its Machine.
	DeleteConfig Kind = "delete KThreesConfig"
	// DeleteToken deletes the token's Secret.
	DeleteToken Kind = "delete token"
	// StripReferences takes all owner references off the token's Secret, as a backup does.
	StripReferences Kind = "strip references"
	// CorruptReferences makes an object that doesn't exist the owner of the token's Secret.
	CorruptReferences Kind = "corrupt references"
	// Crash kills a program of the management cluster.
	Crash Kind = "crash"
)

// Program of the management cluster.
type Program string

// The programs that are killed and started again.
const (
	Operator  Program = "operator"
	APIServer Program = "kube-apiserver"
	Core      Program = "cluster-api-core"
)

// Cluster is what a cluster is when nothing befalls it.
type Cluster struct {
	// Servers and Workers are the numbers of Machines.
	Servers, Workers int
	// Version of all of them.
	Version string
}

// Operation is one thing that befalls a cluster.
type Operation struct {
	// Kind says what is done.
	Kind Kind
	// Want is what the cluster has to be once it has settled.
	Want Cluster
	// Server is the number of the server that it happens to, in the order of the
	// Machines' names; for kinds that are about one.
	Server int
	// Pause is how long a server is frozen or cut off.
	Pause time.Duration
	// Crash is a program that is killed in the midst of it; empty for none.
	Crash Program
	// After is the time from the begin to the crash.
	After time.Duration
}

// String describes the operation in a line.
func (o Operation) String() string {
	text := string(o.Kind)
	switch o.Kind {
	case Scale:
		text += fmt.Sprintf(" to %d servers and %d workers", o.Want.Servers, o.Want.Workers)
	case Upgrade:
		text += " to " + o.Want.Version
	case KillServer, DeleteServer, DeleteConfig:
		text += fmt.Sprintf(" %d", o.Server)
	case FreezeServer, CutServer:
		text += fmt.Sprintf(" %d for %s", o.Server, o.Pause)
	}
	if o.Crash != "" {
		text += fmt.Sprintf(", %s killed after %s", o.Crash, o.After)
	}
	return text
}

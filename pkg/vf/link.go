package vf

import "github.com/kata-vfio/kata-vfio/pkg/vf/link"

// What is read of interfaces and eswitches are package link's values.
type (
	Link     = link.Link
	State    = link.State
	Counters = link.Counters
	Mode     = link.Mode
	Handle   = link.Handle
	Switch   = link.Switch
	Port     = link.Port
)

// The modes of an eswitch.
const (
	Legacy    = link.Legacy
	Switchdev = link.Switchdev
)

package vf

import "github.com/kata-vfio/kata-vfio/pkg/network/vf/link"

// Link is a PF's interface with its VFs, as package link reads it.
type Link = link.Link

// State is a VF as its PF knows it.
type State = link.State

// Counters are a VF's.
type Counters = link.Counters

// Mode is the mode of a PF's eswitch.
type Mode = link.Mode

// Handle names a device in devlink.
type Handle = link.Handle

// Switch is the eswitch of a PF.
type Switch = link.Switch

// Port is where a VF is connected to an eswitch.
type Port = link.Port

// The modes of an eswitch.
const (
	Legacy    = link.Legacy
	Switchdev = link.Switchdev
)

package katastate

import "github.com/kata-vfio/kata-vfio/pkg/pci"

// Runtime is which of Kata's runtimes wrote a state.
type Runtime string

// Kata's runtimes.
const (
	Go   Runtime = "go"
	Rust Runtime = "rust"
)

// Sandbox is one sandbox by Kata's state.
type Sandbox struct {
	ID      string
	Runtime Runtime
	// File is the path of the state on the node.
	File string
	// Hypervisor is the kind of the VMM, such as "qemu".
	Hypervisor string
	// PID is the VMM's; 0 where the state does not name it. The Rust runtime names none
	// for QEMU.
	PID int
	// Devices are the functions of the node that the state names. The Rust runtime names
	// physical endpoints alone.
	Devices []Device
}

// Device is a function of the node in a sandbox.
type Device struct {
	// Address is the function's on the node.
	Address pci.Address
	// Bus is the port or bus of the VM that it is on, such as "rp0"; empty where the
	// state does not name it.
	Bus string
	// GuestPath is the function's path in the guest, "05/00": the slot of each bridge from
	// the root bus on, and its own. Kata 4.1.0 does not write it down; empty then.
	GuestPath string
	// ColdPlugged says that the VM booted with it.
	ColdPlugged bool
	// Endpoint says that it is a network interface of the pod that Kata gave the VM.
	Endpoint bool
}

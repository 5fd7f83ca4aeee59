package device

import "slices"

// UseKind is the way in which the node itself depends on a function.
type UseKind string

// Uses of a function by its own node. A function with any of them is never taken, even if the config selects it.
const (
	// UseAddress: a netdev of the function, or a device stacked on it, has an IP address.
	UseAddress UseKind = "address"
	// UseRoute: a route of the node goes out through the function.
	UseRoute UseKind = "route"
	// UseMaster: a netdev of the function is enslaved to a bond, bridge or team.
	UseMaster UseKind = "master"
	// UseNamespace: a netdev of the function was moved to another network
	// namespace, that of a container for example.
	UseNamespace UseKind = "namespace"
	// UseMount: a file system on the function's storage is mounted.
	UseMount UseKind = "mount"
	// UseSwap: the function's storage carries active swap.
	UseSwap UseKind = "swap"
	// UseStack: the function's storage backs a device-mapper or md device.
	UseStack UseKind = "stack"
	// UseConsole: the function drives the node's boot console, or a frame buffer that the firmware set up is in its memory.
	UseConsole UseKind = "console"
)

// Use is one reason why the node itself needs a function.
type Use struct {
	Kind UseKind `json:"kind"`
	// Name is the kernel's name of the child in use: eth0, nvme0n1p1, card0.
	Name string `json:"name"`
	// Detail completes the sentence of [Use.String]: an address, a mount point, a master, the BAR with a frame buffer.
	Detail string `json:"detail,omitempty"`
}

// String returns the use as a phrase: "netdev eth0 has address 10.0.0.5/24".
func (u Use) String() string {
	switch u.Kind {
	case UseAddress:
		return "netdev " + u.Name + " has address " + u.Detail
	case UseRoute:
		return "netdev " + u.Name + " carries the route " + u.Detail
	case UseMaster:
		return "netdev " + u.Name + " is part of " + u.Detail
	case UseNamespace:
		return "its netdev is in another network namespace"
	case UseMount:
		return "block device " + u.Name + " is mounted on " + u.Detail
	case UseSwap:
		return "block device " + u.Name + " is used as swap"
	case UseStack:
		return "block device " + u.Name + " backs " + u.Detail
	case UseConsole:
		if u.isFrameBuffer() {
			return "the firmware's frame buffer (" + u.Name + ") is in " + u.Detail + ", which VFIO can't reserve until it is gone"
		}
		return "it drives the boot console"
	}
	return string(u.Kind) + " " + u.Name + " " + u.Detail
}

// isFrameBuffer reports whether the use is a frame buffer in the function's memory.
func (u Use) isFrameBuffer() bool { return u.Kind == UseConsole && u.Detail != "" }

// UseFix returns the steps to end the node's use of the function, as a clause. It is empty if the description of the use
// contains them already.
func (f *Function) UseFix() string {
	for _, u := range f.Uses {
		if u.isFrameBuffer() {
			return frameBufferFix(u.Name)
		}
	}
	return ""
}

// IsReserved reports whether the function is on a VFIO driver that can't use it, because the kernel keeps a BAR for the
// firmware's frame buffer. The node itself does not need such a function: somebody gave it to VFIO.
func (f *Function) IsReserved() bool {
	return IsVFIO(f.Driver) && len(f.Uses) > 0 && !slices.ContainsFunc(f.Uses, func(u Use) bool { return !u.isFrameBuffer() })
}

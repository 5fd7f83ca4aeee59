// Package protocol is what the nested VM and its owner say to each other over the VM's second serial port: one JSON
// object on a line, requests from the owner, one reply to each from the VM. The VM's first line is a Reply to no
// request, sent when its drivers are loaded.
package protocol

import "github.com/kata-vfio/kata-vfio/test/lab/frames"

// Device is the serial port in the VM.
const Device = "/dev/ttyS1"

// Request asks for one thing: the field that is set.
type Request struct {
	Report    bool       `json:"report,omitempty"`
	Configure *Configure `json:"configure,omitempty"`
	Ping      *Ping      `json:"ping,omitempty"`
	Run       *Run       `json:"run,omitempty"`
	Frames    *Frames    `json:"frames,omitempty"`
	Bytes     *Bytes     `json:"bytes,omitempty"`
	PowerOff  bool       `json:"powerOff,omitempty"`
}

// Run runs a program to its end, with nothing to read.
type Run struct {
	// Args are the program's path in the VM and its arguments.
	Args []string `json:"args"`
}

// RunResult is how a program ended.
type RunResult struct {
	Code   int    `json:"code"`
	Stdout string `json:"stdout"`
	Stderr string `json:"stderr"`
}

// Bytes writes to a file that can be mapped, and reads it: a memory BAR (resource0 of a function in sysfs), which loses its
// driver and is enabled first, or a disk.
type Bytes struct {
	File string `json:"file"`
	// Offset is a multiple of the page size. What is written and read there is at most a page.
	Offset int64 `json:"offset"`
	// Write may be empty.
	Write []byte `json:"write,omitempty"`
	// Read is how many bytes are read, after the write.
	Read int `json:"read,omitempty"`
}

// Configure brings an interface up and gives it an address.
type Configure struct {
	// MAC finds the interface, like 02:00:00:00:00:10.
	MAC string `json:"mac"`
	// Prefix is the IPv4 address with its prefix length, like 10.9.0.30/24.
	Prefix string `json:"prefix"`
}

// Ping sends ICMP echo requests, one after the reply to the last or a second.
type Ping struct {
	// To is an IPv4 or IPv6 address, and From one of the VM's own, of the same family; empty for the kernel's choice.
	To    string `json:"to"`
	From  string `json:"from,omitempty"`
	Count int    `json:"count"`
}

// Frames sends raw frames and asks for those that came in since the last time, on the first time from then on.
type Frames struct {
	// MAC finds the interface.
	MAC string `json:"mac"`
	// Send may be empty.
	Send []frames.Frame `json:"send,omitempty"`
}

// Reply answers a request. Error is empty on success.
type Reply struct {
	Error  string         `json:"error,omitempty"`
	Report *Report        `json:"report,omitempty"`
	Ping   *PingResult    `json:"ping,omitempty"`
	Run    *RunResult     `json:"run,omitempty"`
	Heard  []frames.Frame `json:"heard,omitempty"`
	Bytes  []byte         `json:"bytes,omitempty"`
}

// PingResult says how many requests were sent and answered.
type PingResult struct {
	Sent     int `json:"sent"`
	Received int `json:"received"`
}

// Report is what the VM sees of its hardware.
type Report struct {
	// Uptime is how long the VM's kernel runs, in seconds.
	Uptime     float64     `json:"uptime"`
	Functions  []Function  `json:"functions"`
	Interfaces []Interface `json:"interfaces"`
	// Displays are the DRM devices, like card0, by the PCI address of their function in the VM.
	Displays []Node `json:"displays"`
	// Framebuffers are the framebuffer devices, likewise.
	Framebuffers []Node `json:"framebuffers"`
	// NVMe are the NVMe controllers, likewise.
	NVMe []Node `json:"nvme"`
}

// Function is a PCI function of the VM.
type Function struct {
	Address string `json:"address"`
	// Vendor, Device (4 hex digits) and Class (6) are as in sysfs without the 0x.
	Vendor string `json:"vendor"`
	Device string `json:"device"`
	Class  string `json:"class"`
	// Driver is empty if none is bound.
	Driver string `json:"driver,omitempty"`
}

// Interface is a network interface with a PCI function behind it.
type Interface struct {
	Name    string `json:"name"`
	Address string `json:"address"` // of the function
	Driver  string `json:"driver"`
	MAC     string `json:"mac"`
	// Addresses are in CIDR form.
	Addresses []string `json:"addresses,omitempty"`
	// Carrier is absent while the interface is down.
	Carrier *bool `json:"carrier,omitempty"`
}

// Node is a device node's name and its PCI function's address.
type Node struct {
	Name    string `json:"name"`
	Address string `json:"address"`
}

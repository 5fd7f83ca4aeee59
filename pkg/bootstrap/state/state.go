// Package state has the values by which a node's set-up is described: what its files
// should be, what has to follow a change of them, and what keeps the node from being
// made fit. The parts of bootstrap (kernel command line, container runtimes, VFs, ...)
// say what they want in these words; they read and decide, and change nothing.
package state

import "io/fs"

// Wanted is what one part wants of the node.
type Wanted struct {
	Files    []File    `json:"files,omitempty"`
	Settings []Setting `json:"settings,omitempty"`
	Problems []Problem `json:"problems,omitempty"`
	Facts    []Fact    `json:"facts,omitempty"`
	Modules  []Module  `json:"modules,omitempty"`
}

// File is a file as it should be.
type File struct {
	// Part is whose it is, such as "kernel" or "containerd".
	Part string `json:"part"`
	// Path is below the node's root, without a leading slash.
	Path string `json:"path"`
	// Content is the whole of it; a link has a Target in its place.
	Content []byte `json:"-"`
	Target  string `json:"target,omitempty"`
	// Mode has the permission bits of a new file. An existing file keeps its own, except that with 0600 everyone
	// but its owner loses access.
	Mode fs.FileMode `json:"-"`
	// Why says in one line what it is for.
	Why string `json:"why"`
	// Then is what has to follow before a change of it counts.
	Then []FollowUp `json:"then,omitempty"`
}

// FollowUp is what has to be done after files were changed.
type FollowUp string

// Follow-ups, in words of what they do.
const (
	// The boot loader's own files are regenerated.
	BootConfig FollowUp = "BootConfig"
	// The initial RAM file systems are regenerated.
	Initramfs FollowUp = "Initramfs"
	// VFIO's modules are loaded.
	ModulesLoad FollowUp = "ModulesLoad"
	// Systemd reloads its units.
	UnitsReload FollowUp = "UnitsReload"
	// The pod-resources socket is started, unless a program serves it.
	SocketStart FollowUp = "SocketStart"
	// It is stopped, if systemd has it: its unit is going.
	SocketStop FollowUp = "SocketStop"
	// Udev reloads its rules.
	UdevReload FollowUp = "UdevReload"
	// The network's manager reloads its configuration.
	NetworkReload FollowUp = "NetworkReload"
	// The runtime reads its configuration at its start. Pods go on.
	ContainerdRestart FollowUp = "ContainerdRestart"
	CRIORestart       FollowUp = "CRIORestart"
	// Only the next boot brings it. Nothing reboots by itself.
	Reboot FollowUp = "Reboot"
)

// Setting is a running kernel's setting, as a file of /proc or /sys shows it. What
// keeps it over a boot is a File. A file that is not there has nothing to set: its
// module is not loaded, or this kernel does not know it.
type Setting struct {
	Part string `json:"part"`
	Path string `json:"path"`
	// Value is what the file is to show; of [Cmdline] a word that is to be in it.
	Value string `json:"value"`
	Why   string `json:"why"`
	// AtBoot: only the next boot can set it, and nothing writes it.
	AtBoot bool `json:"atBoot,omitempty"`
}

// Module is a kernel module that Kata needs. The kernel loads it by itself when it is first needed, so it need not be loaded, but
// the kernel has to have it.
type Module struct {
	// Name is as lsmod(8) shows it, with "_".
	Name string `json:"name"`
	// Config is the option that a kernel with the module is built with.
	Config string `json:"config"`
	// Why says what it is needed for.
	Why string `json:"why"`
}

// Cmdline is the file with the running kernel's command line.
const Cmdline = "proc/cmdline"

// Problem is what keeps the node from being fit, or endangers it.
type Problem struct {
	Part string `json:"part"`
	// Fatal: nothing is changed while it is there.
	Fatal bool `json:"fatal"`
	// Text says what is wrong, Fix what to do, each a sentence or two.
	Text string `json:"text"`
	Fix  string `json:"fix"`
	// Path is the file that it is about, if any.
	Path string `json:"path,omitempty"`
	// AtBoot: it is of what runs, and the files are right: the next boot mends it, if anything here can, and the node is not fit before.
	AtBoot bool `json:"atBoot,omitempty"`
	// ByHand: Fix is left to a person, and nothing here can see whether it was done.
	ByHand bool `json:"byHand,omitempty"`
}

// Fact is what was found, and where.
type Fact struct {
	Part   string `json:"part"`
	Name   string `json:"name"`
	Value  string `json:"value"`
	Source string `json:"source"`
}

// Tree is what parts read: the node below its root, paths without a leading slash.
// Errors wrap fs.ErrNotExist where nothing is there. *sysfs.FS is one.
type Tree interface {
	ReadAtMost(name string, limit int64) ([]byte, error)
	ReadDir(name string) ([]string, error)
}

// Package state has the types that describe a node's configuration: the files that it requires, the follow-ups of a change,
// and the problems that prevent it. The parts of bootstrap (kernel command line, container runtimes, VFs, ...) return these.
// They read and decide, and change nothing. The package also describes the file at a path of the node ([Image]), and has the
// record of the last verify ([Record]), which bootstrap saves on the node and the plugin serves as metrics.
package state

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// Wanted has the requirements of one part on the node.
type Wanted struct {
	Files    []File    `json:"files,omitempty"`
	Settings []Setting `json:"settings,omitempty"`
	Problems []Problem `json:"problems,omitempty"`
	Facts    []Fact    `json:"facts,omitempty"`
	Modules  []Module  `json:"modules,omitempty"`
}

// File is a required file.
type File struct {
	// Part is the part that requires it, such as "kernel" or "containerd".
	Part string `json:"part"`
	// Path is below the node's root, without a leading slash.
	Path string `json:"path"`
	// Content is the whole content. A link has a Target instead.
	Content []byte `json:"-"`
	Target  string `json:"target,omitempty"`
	// Mode has the permission bits of a new file. An existing file keeps its own.
	Mode fs.FileMode `json:"-"`
	// Why is the file's purpose in one line.
	Why string `json:"why"`
	// Then are the follow-ups that put a change into effect.
	Then []FollowUp `json:"then,omitempty"`
}

// FollowUp is an action that a changed file requires.
type FollowUp string

// Follow-ups.
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
	// The socket is stopped if systemd still has its unit, which is removed.
	SocketStop FollowUp = "SocketStop"
	// Udev reloads its rules.
	UdevReload FollowUp = "UdevReload"
	// The network's manager reloads its configuration.
	NetworkReload FollowUp = "NetworkReload"
	// The runtime restarts, because it reads its configuration at its start. Pods keep running.
	ContainerdRestart FollowUp = "ContainerdRestart"
	CRIORestart       FollowUp = "CRIORestart"
	// The change needs a reboot. Bootstrap never reboots.
	Reboot FollowUp = "Reboot"
)

// Setting is a setting of the running kernel, as a file of /proc or /sys shows it. A
// File keeps it across reboots. If the file of the setting does not exist, its module is
// not loaded or the kernel does not have it, and nothing is set.
type Setting struct {
	Part string `json:"part"`
	Path string `json:"path"`
	// Value is the required content of the file. For the command line of the running kernel it is a word, or a group of words,
	// that the file must contain.
	Value string `json:"value"`
	Why   string `json:"why"`
	// AtBoot is true if only a reboot can set the value. Bootstrap does not write it.
	AtBoot bool `json:"atBoot,omitempty"`
}

// Module is a kernel module that Kata needs. The kernel must have it, and loads it when it is first needed.
type Module struct {
	// Name is the module's name as lsmod(8) shows it, with "_".
	Name string `json:"name"`
	// Config is the kernel's build option for the module.
	Config string `json:"config"`
	// Why is the reason why Kata needs it.
	Why string `json:"why"`
}

// Problem is something that prevents the configuration, or endangers the node.
type Problem struct {
	Part string `json:"part"`
	// Code names the kind of the problem. `kata-vfio-bootstrap explain` describes it.
	Code rule.Code `json:"code"`
	// Fatal is true if bootstrap changes nothing while the problem exists.
	Fatal bool `json:"fatal"`
	// Text describes the problem, Fix the solution, each in a sentence or two.
	Text string `json:"text"`
	Fix  string `json:"fix"`
	// Path is the file with the problem, if any.
	Path string `json:"path,omitempty"`
	// AtBoot is true if the problem is in the running system, and the files match. Only a reboot can fix it.
	AtBoot bool `json:"atBoot,omitempty"`
	// ByHand is true if Fix is a manual step, and bootstrap can't verify whether it was done.
	ByHand bool `json:"byHand,omitempty"`
}

// MarshalJSON implements [json.Marshaler]. JSON shows the path as the output for people does, with a leading slash. Names below
// the node's root have none.
func (p Problem) MarshalJSON() ([]byte, error) {
	type plain Problem
	if p.Path != "" {
		p.Path = "/" + p.Path
	}
	return json.Marshal(plain(p))
}

// WithCode returns the text and then the code, as refusals are printed: "the boot loader is unknown (BootLoaderUnknown)".
func (p *Problem) WithCode() string {
	return strings.TrimSuffix(p.Text, ".") + " (" + string(p.Code) + ")"
}

// Fact is a property of the node, and where it was read.
type Fact struct {
	Part   string `json:"part"`
	Name   string `json:"name"`
	Value  string `json:"value"`
	Source string `json:"source"`
}

// AttributeReader is what the tree of a running node also implements: [Tree.ReadAtMost] that does not wait for an
// attribute of a PCI function for longer than some seconds. Locked says that it gave up, and comes with an error.
type AttributeReader interface {
	ReadAttribute(name string, limit int64) (data []byte, locked bool, err error)
}

// ReadAttribute reads a file, as an [AttributeReader] if the tree is one.
func ReadAttribute(t Tree, name string, limit int64) (data []byte, locked bool, err error) {
	if reader, ok := t.(AttributeReader); ok {
		return reader.ReadAttribute(name, limit)
	}
	data, err = t.ReadAtMost(name, limit)
	return data, false, err
}

// LockedProblem is the problem of a part that the attribute of a function can't be read, so that it can't be set either.
func LockedProblem(part, name string) Problem {
	return Problem{
		Part: part, Code: rule.Locked, Path: name, Text: fmt.Sprintf("/%s can't be read: an operation on the function hangs in the kernel", name),
		Fix: "wait a minute, and run bootstrap again; if it does not end, drain and reboot the node",
	}
}

// Tree has the files that parts read. Paths are below the node's root, without a leading slash. Errors wrap fs.ErrNotExist
// if a file does not exist. *sysfs.FS implements it.
type Tree interface {
	ReadAtMost(name string, limit int64) ([]byte, error)
	ReadDir(name string) ([]string, error)
}

package runtimes

import (
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// KataRuntime is which of Kata's runtimes wrote a state.
type KataRuntime string

// Kata's runtimes.
const (
	KataGo   KataRuntime = "go"
	KataRust KataRuntime = "rust"
)

// KataSandbox is one sandbox by Kata's state.
type KataSandbox struct {
	ID      string
	Runtime KataRuntime
	// File is the path of the state on the node.
	File string
	// Hypervisor is the kind of the VMM, such as "qemu".
	Hypervisor string
	// PID is the VMM's; 0 where the state does not name it. The Rust runtime names none
	// for QEMU.
	PID int
	// Devices are the functions of the node that the state names. The Rust runtime names
	// physical endpoints alone.
	Devices []KataDevice
}

// KataDevice is a function of the node in a sandbox.
type KataDevice struct {
	// Address is the function's on the node.
	Address pci.Address
	// Bus is the port or bus of the VM that it is on, such as "rp0"; empty if the
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

// source is where one of Kata's runtimes keeps its state.
type source struct {
	dir, file string
	parse     func([]byte) (KataSandbox, error)
}

func sources() []source {
	return []source{
		{dir: "run/vc/sbs", file: "persist.json", parse: parseGo},
		{dir: "run/kata", file: "state.json", parse: parseRust},
	}
}

const (
	// maxState is far above any state: Kata's own configuration is most of it.
	maxState = 4 << 20
	// maxSandboxes bounds how many are read; the kubelet's own limit is some hundred
	// pods.
	maxSandboxes = 4096
)

// ReadKataSandboxes returns the sandboxes that the node's states name, by runtime and id, and what it read: the directories, and each
// state that could not be read or parsed. A directory without a state is a sandbox that is being created or removed.
//
// The Go runtime has its states in /run/vc/sbs/<id>/persist.json, the Rust runtime in /run/kata/<id>/state.json. The files
// are Kata's own, for its own next process, and no interface. What is known here is that of Kata 4.1.0: a file that says
// something else is damaged, and never half believed. States contain annotations of pods: only the fields declared here are read.
func ReadKataSandboxes(n *facts.Node) ([]KataSandbox, []facts.Fact) {
	var found []KataSandbox
	var asked []facts.Fact
	for _, src := range sources() {
		ids, listed := n.List(src.dir)
		if len(ids) > maxSandboxes {
			listed.Status, listed.Err = facts.Broken, fmt.Sprintf("it has more than %d sandboxes", maxSandboxes)
			ids = ids[:maxSandboxes]
		}
		asked = append(asked, listed)
		for _, id := range ids {
			s, err := src.read(n, id)
			switch {
			case errors.Is(err, fs.ErrNotExist):
			case err != nil:
				asked = append(asked, facts.Fact{Path: "/" + path.Join(src.dir, id, src.file), How: "read", Status: facts.Broken, Err: err.Error(), Needs: "root"})
			default:
				found = append(found, s)
			}
		}
	}
	return found, asked
}

// read reads one state. It must be of the sandbox whose directory it is in.
func (src *source) read(n *facts.Node, id string) (KataSandbox, error) {
	file := path.Join(src.dir, id, src.file)
	text, err := n.FS().ReadAtMost(file, maxState)
	if err != nil {
		return KataSandbox{}, err
	}
	s, err := src.parse(text)
	if err != nil {
		return KataSandbox{}, err
	}
	if s.ID != id {
		return KataSandbox{}, fmt.Errorf("it is the state of sandbox %.64q, in the directory of another one", s.ID)
	}
	s.File = "/" + file
	return s, nil
}

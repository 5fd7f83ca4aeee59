package runtimes

import (
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// KataRuntime names the runtime of Kata that wrote a state.
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
	// PID is the PID of the VMM; 0 if the state does not have it. The Rust runtime does not write it for QEMU.
	PID int
	// Devices are the functions of the node that the state names. The Rust runtime names only physical endpoints.
	Devices []KataDevice
}

// KataDevice is a function of the node in a sandbox.
type KataDevice struct {
	// Address is the function's address on the node.
	Address pci.Address
	// Bus is the port or bus of the VM that it is on, such as "rp0"; empty if the
	// state does not name it.
	Bus string
	// GuestPath is the function's path in the guest, "05/00": the slot of each bridge from the root bus on, and its own. It is empty
	// in states of Kata 4.1.0, which does not write it.
	GuestPath string
	// ColdPlugged is set if the VM booted with the function.
	ColdPlugged bool
	// Endpoint is set if the function is a network interface of the pod that Kata gave to the VM.
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
	// maxState is the size limit of a state in bytes. Real states, which mostly contain Kata's configuration, are much smaller.
	maxState = 4 << 20
	// maxSandboxes limits how many states are read for a runtime. The kubelet's own limit is some hundred pods.
	maxSandboxes = 4096
)

// ReadKataSandboxes returns the sandboxes that the node's states name, by runtime and id, and what it read: the directories, and each
// state that could not be read or parsed. A directory without a state is a sandbox that is being created or removed.
//
// The Go runtime has its states in /run/vc/sbs/<id>/persist.json, the Rust runtime in /run/kata/<id>/state.json. Kata writes the
// files for its own next process; they are not a stable interface. The format here is that of Kata 4.1.0. A file in another format
// counts as damaged, and nothing of it is used. States contain annotations of pods: only the fields declared here are read.
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

// read reads one state, which must be the state of the sandbox that its directory names.
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

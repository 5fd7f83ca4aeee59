package facts

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// Command returns the command register of a function. It reads only the first six bytes of configuration space, and does not access
// a function that is locked or does not answer.
func (n *Node) Command(f *device.Function) (uint16, Fact) {
	const end = 6
	name := path.Join(sysfs.FunctionPath(f.Address), "config")
	seen := Fact{Path: "/" + name, How: "config"}
	if f.Locked || f.ConfigDead {
		seen.Status, seen.Err = Broken, "the function does not answer"
		return 0, seen
	}
	head, err := n.fs.ReadAtMost(name, end)
	seen = fact(name, "", "config", err)
	if seen.OK() && len(head) < end {
		seen.Status, seen.Err = Broken, "it is too short"
	}
	if !seen.OK() {
		return 0, seen
	}
	command := binary.LittleEndian.Uint16(head[end-2:])
	seen.Value = fmt.Sprintf("command 0x%04x", command)
	return command, seen
}

// FatalErrors returns the number of fatal errors that the kernel counted for a function since it discovered the function
// (Documentation/ABI/testing/sysfs-bus-pci-devices-aer_stats).
func (n *Node) FatalErrors(f *device.Function) (uint64, Fact) {
	file := n.Read(path.Join(sysfs.FunctionPath(f.Address), "aer_dev_fatal"))
	if !file.OK() {
		return 0, file
	}
	if total, ok := pci.ParseFatalErrors(file.Value); ok {
		return total, file
	}
	file.Status, file.Err = Broken, "it has no total"
	return 0, file
}

// Permissions returns the permission bits of a file of the node. It follows links.
func (n *Node) Permissions(name string) (fs.FileMode, Fact) {
	name = strings.TrimPrefix(path.Clean(name), "/")
	info, err := n.fs.Stat(name)
	seen := fact(name, "", "stat", err)
	if !seen.OK() {
		return 0, seen
	}
	seen.Value = info.Mode().String()
	return info.Mode().Perm(), seen
}

// Config returns the part of a function's configuration space that the kernel lets the reader see. The caller sets the fact's value.
// Config does not access a function that is locked or does not answer.
func (n *Node) Config(a pci.Address) ([]byte, Fact) {
	seen := Fact{Path: "/" + path.Join(sysfs.FunctionPath(a), "config"), How: "config"}
	f, ok := n.Snapshot.Function(a)
	if !ok || f.Locked || f.ConfigDead {
		seen.Status, seen.Err = Broken, "the function does not answer"
		return nil, seen
	}
	registers, err := n.fs.ConfigSpace(a)
	if err != nil {
		return nil, broken(seen.Path, seen.How, err)
	}
	const header = 64
	// Without CAP_SYS_ADMIN, the kernel gives only the first 64 bytes (pci_read_config in drivers/pci/pci-sysfs.c).
	if len(registers) <= header {
		seen.Status, seen.Err = Denied, "the header alone is readable"
		return nil, seen
	}
	return registers, seen
}

// ProductData returns the fact that the vital product data of a function could not be read when the node was scanned. Call it only
// for such a function.
func (n *Node) ProductData(f *device.Function) Fact {
	return Fact{Path: "/" + path.Join(sysfs.FunctionPath(f.Address), "vpd"), How: "read", Status: Denied, Err: f.Manager.Unread, Needs: "root"}
}

// Names of the files that the plugin writes below its run directory for the audit.
const (
	BaselineFile  = "acs.json"
	PublishedFile = "published.json"

	runDir = "run/kata-vfio"
)

// Baseline is what the plugin writes to /run/kata-vfio/acs.json when it first starts in a boot: which functions there are, and the
// registers that decide about peer-to-peer requests, as the firmware and the kernel set them. Only a person or a tool changes them
// afterwards.
type Baseline struct {
	BootID string `json:"bootID"`
	// Functions are all functions except VFs, which come and go.
	Functions map[pci.Address]Registers `json:"functions"`
}

// Registers are one function's part of a [Baseline]. A register is nil if the function does not have the capability, or if it could
// not be read.
type Registers struct {
	// Identity is the function's. It is empty in a baseline that an earlier version of the plugin wrote.
	Identity device.Identity `json:"identity,omitzero"`
	// ACS is the control word of Access Control Services.
	ACS *uint16 `json:"acs,omitempty"`
	// ATS is whether address translation services were on. The kernel switches ATS on and off when it attaches the function to an
	// IOMMU domain, so a change alone is not a fault.
	ATS *bool `json:"ats,omitempty"`
}

// Since is how a function of a node relates to a [Baseline] of its boot.
type Since int

// Values of [Since].
const (
	// Unchanged: the baseline has the function, or does not say which device had the address.
	Unchanged Since = iota
	// Added: the baseline has no function at the address.
	Added
	// Returned: since the baseline, a function has left the bus. It was found again, or replaced by one of its model.
	Returned
	// Replaced: the baseline has another device at the address.
	Replaced
)

// Compare returns what happened to a function since the baseline, if id is its identity now.
func (b *Baseline) Compare(a pci.Address, id device.Identity) Since {
	r, known := b.Functions[a]
	was := r.Identity
	switch {
	case !known:
		return Added
	case was == (device.Identity{}):
		return Unchanged
	case was.Match(id) == device.Differs:
		return Replaced
	// Bridges, and functions of a copy of a node, have no inode.
	case was.Inode != 0 && id.Inode != 0 && !was.Is(id):
		return Returned
	}
	return Unchanged
}

// NewBaseline returns the baseline of a node as it is now.
func NewBaseline(s *device.Snapshot) *Baseline {
	b := &Baseline{BootID: s.Host.BootID, Functions: map[pci.Address]Registers{}}
	for i := range s.Functions {
		f := &s.Functions[i]
		// VFs come and go during a boot, and the firmware has not set their registers.
		if f.VF != nil {
			continue
		}
		r := Registers{Identity: s.Identify(f)}
		if acs := f.Capabilities.ACS; acs != nil {
			r.ACS = &acs.Control
		}
		if ats := f.Capabilities.ATS; ats != nil {
			r.ATS = &ats.Enabled
		}
		b.Functions[f.Address] = r
	}
	return b
}

// Baseline returns the baseline that the plugin recorded in this boot, and its fact: Absent if there is none, or only
// that of another boot.
func (n *Node) Baseline() (*Baseline, Fact) {
	file := n.Read(path.Join(runDir, BaselineFile))
	if !file.OK() {
		return nil, file
	}
	var b Baseline
	if err := json.Unmarshal([]byte(file.Value), &b); err != nil {
		file.Status, file.Err, file.Value = Broken, fmt.Sprintf("decode: %v", err), ""
		return nil, file
	}
	file.Value = "boot " + b.BootID + ", " + output.Count(len(b.Functions), "function")
	if b.BootID != n.Snapshot.Host.BootID {
		file.Status = Absent
		return nil, file
	}
	return &b, file
}

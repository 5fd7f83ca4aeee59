package facts

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"sync"
	"syscall"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// Command returns the command register of a function. It reads only the six bytes up to it, and does not touch a
// function that is locked or does not answer.
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

// FatalErrors returns how many fatal errors the kernel counted for a function
// since it was found (Documentation/ABI/testing/sysfs-bus-pci-devices-aer_stats).
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

// Permissions returns who may do what with a file of the node, links followed.
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

// Config returns what is readable of a function's configuration space; the fact's value
// is the caller's to fill in. A function that is locked or does not answer is not
// touched.
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

// maxVPD is how much is read of a function's vital product data. The device returns four bytes at a time, and its
// identity comes first.
const maxVPD = 1 << 10

// VPDs caches vital product data for all nodes that get it by [Node.KeepVPDs]: reading them takes a device up to
// seconds, during which others can't read its configuration space. They don't change while the function is on the bus.
// Safe for concurrent use.
type VPDs struct {
	mu   sync.Mutex // guards read
	read map[pci.Address]keptVPD
}

// keptVPD has the data of a function, and the inode of its sysfs directory, which changes when the function is removed
// and found again.
type keptVPD struct {
	inode uint64
	fact  Fact
}

// NewVPDs returns one that has read nothing.
func NewVPDs() *VPDs { return &VPDs{read: map[pci.Address]keptVPD{}} }

// KeepVPDs has the node take vital product data from v, and keep there what it reads. Call
// it before the node is asked.
func (n *Node) KeepVPDs(v *VPDs) { n.vpds = v }

// VPD returns the printable part of a function's vital product data. Each word of it
// is asked of the device, so that only a check that depends on it should read it.
func (n *Node) VPD(a pci.Address) Fact {
	name := path.Join("sys/bus/pci/devices", a.String(), "vpd")
	return n.once(n.files, name, func() Fact {
		inode, ok := n.inode(path.Dir(name))
		if n.vpds == nil || !ok {
			return n.readVPD(name)
		}
		return n.vpds.of(a, inode, func() Fact { return n.readVPD(name) })
	})
}

func (n *Node) readVPD(name string) Fact {
	data, err := n.fs.ReadAtMost(name, maxVPD)
	seen := fact(name, printable(data), "read", err)
	seen.Needs = "root"
	return seen
}

// inode returns the inode of a directory, false if it is unknown.
func (n *Node) inode(dir string) (uint64, bool) {
	info, err := n.fs.Stat(dir)
	if err != nil {
		return 0, false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return stat.Ino, true
}

// of returns what is kept of the function whose directory has the inode, or else what read
// returns, which is kept unless it failed.
func (v *VPDs) of(a pci.Address, inode uint64, read func() Fact) Fact {
	v.mu.Lock()
	defer v.mu.Unlock()
	// The lock is held while the device is read: a second reader would only wait for the device itself.
	if kept, ok := v.read[a]; ok && kept.inode == inode {
		return kept.fact
	}
	fact := read()
	if fact.OK() {
		v.read[a] = keptVPD{inode: inode, fact: fact}
	}
	return fact
}

// printable returns text with each run of other bytes as one space.
func printable(data []byte) string {
	words := strings.FieldsFunc(string(data), func(r rune) bool { return r <= ' ' || r > '~' })
	return strings.Join(words, " ")
}

// Names of the files that the plugin writes below its run directory for the audit.
const (
	BaselineFile  = "acs.json"
	PublishedFile = "published.json"

	runDir = "run/kata-vfio"
)

// Baseline is what the plugin writes to /run/kata-vfio/acs.json when it first
// starts in a boot: what decides over peer-to-peer requests, as firmware and
// kernel had left it. Nothing but a person or a tool changes it afterwards.
type Baseline struct {
	BootID string `json:"bootID"`
	// Functions are all but VFs, which come and go.
	Functions map[pci.Address]Registers `json:"functions"`
}

// Registers are one function's part of a [Baseline]. What the function doesn't
// have, or could not be read, is absent.
type Registers struct {
	// ACS is the control word of Access Control Services.
	ACS *uint16 `json:"acs,omitempty"`
	// ATS is whether address translation services were on. The kernel switches them with the function's domain, so
	// a change is not a drift by itself.
	ATS *bool `json:"ats,omitempty"`
}

// NewBaseline returns the baseline of a node as it is now.
func NewBaseline(s *device.Snapshot) *Baseline {
	b := &Baseline{BootID: s.Host.BootID, Functions: map[pci.Address]Registers{}}
	for i := range s.Functions {
		f := &s.Functions[i]
		if f.VF != nil {
			continue
		}
		var r Registers
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
	file.Value = fmt.Sprintf("boot %s, %d functions", b.BootID, len(b.Functions))
	if b.BootID != n.Snapshot.Host.BootID {
		file.Status = Absent
		return nil, file
	}
	return &b, file
}

package facts

import (
	"path"
	"strings"
	"sync"
	"syscall"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// maxVPD is how much is read of a function's vital product data. The device hands
// out four bytes at a time, and its identity stands at the front.
const maxVPD = 1 << 10

// VPDs keeps the vital product data that were read, for all nodes that are given it by
// [Node.KeepVPDs]: reading them takes a device up to seconds, and keeps others from its
// configuration space meanwhile. They don't change while the function is on the bus. Safe
// for concurrent use.
type VPDs struct {
	mu   sync.Mutex // guards read
	read map[pci.Address]keptVPD
}

// keptVPD is what was read of a function. Its directory in sysfs has another inode
// once it is removed and found again.
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

// inode returns that of a directory, false where it can't be told.
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

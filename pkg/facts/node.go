// Package facts is what an audit knows of a node: its PCI functions, their tenants now (the journal) and before (the
// ledger), what processes hold, its firmware's tables, and the files that configure it, as the programs that they configure
// read them. It reads below one root, a live node's or that of a copy, and changes nothing.
package facts

import (
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/kernelargs"
)

// Node is one node at the time of [New]. Files are read when they are first
// asked for and kept, so that all checks see the same. Safe for concurrent use.
type Node struct {
	Snapshot *device.Snapshot
	// Tenancies are the functions that claims have, by address.
	Tenancies []Tenancy
	// Damaged are the files of the journal that could not be read.
	Damaged []Fact

	fs    *sysfs.FS
	offer offer
	// records are those of claims, by UID.
	records []*journal.Record
	// journal are all records, as they were read first.
	journal []*journal.Record
	// bound are the functions that the plugin keeps bound.
	bound map[pci.Address]bool
	// noLedger is set by [Node.WithoutLedger].
	noLedger string
	// These are read once, at their first use: behind has the functions by their VFIO nodes, and nodeNumbers the nodes
	// by their numbers.
	processes   func() processes
	behind      func() map[string][]pci.Address
	nodeNumbers func() map[string]string
	links       func() (*Links, Fact)
	nextBoot    func() []kernelargs.Line

	mu        sync.Mutex // guards those below
	files     map[string]Fact
	tails     map[string]Fact
	lists     map[string]Fact
	judgments map[pci.Address]isolation.Judgment

	memo    sync.Map // of [Memo]
	stats   sync.Map // path to Stat
	real    sync.Map // path to what a link says, or ""
	decoded sync.Map // name and text of a journal's file to its record
}

// New returns the node that the snapshot was taken of, with the tenancies that its files record. The caller owns
// the file system and keeps it open while it uses the node.
func New(fsys *sysfs.FS, s *device.Snapshot) *Node {
	n := &Node{
		Snapshot: s, fs: fsys,
		files: map[string]Fact{}, tails: map[string]Fact{}, lists: map[string]Fact{}, judgments: map[pci.Address]isolation.Judgment{},
	}
	n.processes = sync.OnceValue(n.readProcesses)
	n.behind, n.nodeNumbers = sync.OnceValue(n.functionsByNode), sync.OnceValue(n.readNumbers)
	n.links = sync.OnceValues(n.copiedLinks)
	n.nextBoot = sync.OnceValue(n.readNextBoot)
	// The tenancies come first: readOffer counts the functions that they have.
	n.readTenancies()
	n.readOffer()
	return n
}

// Judgment returns what package isolation says of a function of the snapshot. Each function is judged once.
func (n *Node) Judgment(f *device.Function) isolation.Judgment {
	n.mu.Lock()
	defer n.mu.Unlock()
	j, ok := n.judgments[f.Address]
	if !ok {
		j = isolation.Judge(n.Snapshot, f)
		n.judgments[f.Address] = j
	}
	return j
}

// maxFile is how much of a file is read: /proc/kallsyms and the like have no end
// that a check should wait for.
const maxFile = 4 << 20

// Read returns a file of the node: "sys/module/vfio/parameters/...". A leading
// slash is allowed.
func (n *Node) Read(name string) Fact {
	name = strings.TrimPrefix(path.Clean(name), "/")
	return n.once(n.files, name, func() Fact {
		data, err := n.fs.ReadAtMost(name, maxFile)
		return fact(name, strings.TrimSpace(string(data)), "read", err)
	})
}

// ReadTail returns the end of a file, of which [Node.Read] has the beginning: that of a log.
func (n *Node) ReadTail(name string) Fact {
	name = strings.TrimPrefix(path.Clean(name), "/")
	return n.once(n.tails, name, func() Fact {
		data, err := n.fs.ReadTail(name, maxFile)
		return fact(name, strings.TrimSpace(string(data)), "read", err)
	})
}

// List returns the names in a directory, sorted as strings, and the fact that
// says so.
func (n *Node) List(name string) ([]string, Fact) {
	name = strings.TrimPrefix(path.Clean(name), "/")
	f := n.once(n.lists, name, func() Fact {
		names, err := n.fs.ReadDir(name)
		return fact(name, strings.Join(names, "\n"), "list", err)
	})
	if !f.OK() || f.Value == "" {
		return nil, f
	}
	return strings.Split(f.Value, "\n"), f
}

// Glob returns the files of a directory whose names match the pattern of
// [path.Match], read, by name.
func (n *Node) Glob(dir, pattern string) []Fact {
	names, _ := n.List(dir)
	var files []Fact
	for _, name := range names {
		if ok, err := path.Match(pattern, name); err == nil && ok {
			files = append(files, n.Read(path.Join(dir, name)))
		}
	}
	return files
}

// Exists reports whether a file of any kind exists, with links followed. The fact's value is empty.
func (n *Node) Exists(name string) Fact {
	name = strings.TrimPrefix(path.Clean(name), "/")
	_, err := n.fs.Stat(name)
	return fact(name, "", "stat", err)
}

// FS returns the file system that the node is read from.
func (n *Node) FS() *sysfs.FS { return n.fs }

func (n *Node) once(cache map[string]Fact, name string, read func() Fact) Fact {
	n.mu.Lock()
	f, ok := cache[name]
	n.mu.Unlock()
	if ok {
		return f
	}
	// Without the lock, because a read of sysfs may wait for a device.
	f = read()
	n.mu.Lock()
	defer n.mu.Unlock()
	if first, ok := cache[name]; ok { // another goroutine was faster, and all return the same
		return first
	}
	cache[name] = f
	return f
}

func fact(name, value, how string, err error) Fact {
	f := Fact{Path: "/" + name, Value: value, How: how}
	switch {
	case err == nil:
		return f
	// ENOTDIR: what should be a directory of the path is a file, so nothing is at the path.
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		f.Status = Absent
	case errors.Is(err, fs.ErrPermission):
		f.Status, f.Err = Denied, err.Error()
	default:
		f.Status, f.Err = Broken, err.Error()
	}
	f.Value = ""
	return f
}

// Functions returns the functions of the given types, by address; without types the assignable ones: GPUs and their VFs,
// PFs, VFs, NVMe drives and accelerators.
func (n *Node) Functions(types ...device.Type) []*device.Function {
	if len(types) == 0 {
		types = []device.Type{device.GPU, device.PFType, device.VFType, device.GPUVF, device.NVMe, device.Accelerator}
	}
	var found []*device.Function
	for i := range n.Snapshot.Functions {
		if f := &n.Snapshot.Functions[i]; slices.Contains(types, f.Type) {
			found = append(found, f)
		}
	}
	return found
}

// Memo returns the value of the key, which make is called for once: the result of a reader outside of this package from
// many files. Keys have a type of the reader's package.
func Memo[T any](n *Node, key any, make func() T) T {
	once, _ := n.memo.LoadOrStore(key, sync.OnceValue(func() any { return make() }))
	return once.(func() any)().(T)
}

// Status is how a read ended.
type Status int

// Statuses. Denied is for want of privilege; Broken is any other error.
const (
	Present Status = iota
	Absent
	Denied
	Broken
)

// Fact is the result of one read of the node.
type Fact struct {
	// Path is as on the node, with its leading slash.
	Path string
	// Value is the content without the space around it, and for a list the names
	// with spaces between them.
	Value  string
	Status Status
	// How is that of [rule.Evidence].
	How string
	// Err says what went wrong where Status is Denied or Broken.
	Err string
	// Needs is the privilege that the read needs, if any.
	Needs string
}

// OK reports whether the value is there.
func (f Fact) OK() bool { return f.Status == Present }

// BrokenBy returns the fact of a file whose content does not help, because of err.
func (f Fact) BrokenBy(err error) Fact {
	f.Status, f.Err = Broken, err.Error()
	return f
}

// Known reports whether the node answered, with a value or with its absence.
func (f Fact) Known() bool { return f.Status == Present || f.Status == Absent }

// Is reports whether the value is one of the words.
func (f Fact) Is(words ...string) bool {
	for _, w := range words {
		if f.OK() && f.Value == w {
			return true
		}
	}
	return false
}

// On reports whether a boolean parameter is set, as kernels print them.
func (f Fact) On() bool {
	on, _ := kernelargs.Bool(f.Value)
	return f.OK() && f.Value != "" && on
}

// Words splits the value at spaces.
func (f Fact) Words() []string { return strings.Fields(f.Value) }

// NotThere is the error of evidence whose status is Absent.
const NotThere = "not there"

// maxEvidence is how much of a value goes into evidence.
const maxEvidence = 512

// Evidence returns the fact as evidence.
func (f Fact) Evidence() rule.Evidence {
	e := rule.Evidence{Path: f.Path, Value: f.Value, How: f.How, Error: f.Err, Needs: f.Needs}
	if len(e.Value) > maxEvidence {
		e.Value = strings.ToValidUTF8(e.Value[:maxEvidence], "") + "…"
	}
	if f.Status == Absent {
		e.Error = NotThere
	}
	if f.Status == Denied && e.Needs == "" {
		e.Needs = "root"
	}
	return e
}

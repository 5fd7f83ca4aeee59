// Package facts reads what an audit knows about a node: its PCI functions, their present tenants (from the journal) and past
// tenants (from the ledger), the devices that processes have open, the firmware's tables, and the files that configure the node, as
// the configured programs read them. It reads below one root, that of a live node or of a copy, and changes nothing.
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

// Node is one node at the time of [New]. A file is read when it is first needed, and its content is kept, so that all checks see
// the same content. A Node is safe for concurrent use.
type Node struct {
	Snapshot *device.Snapshot
	// Tenancies are the functions that claims have, by address.
	Tenancies []Tenancy
	// Damaged are the files of the journal that could not be read.
	Damaged []Fact

	fs    *sysfs.FS
	offer offer
	// records are the records of claims, sorted by UID.
	records []*journal.Record
	// journal are all records, as New read them.
	journal []*journal.Record
	// bound are the functions that the plugin keeps bound without a claim.
	bound map[pci.Address]bool
	// noLedger is set by [Node.WithoutLedger].
	noLedger string
	// The following functions read once, at their first use. behind returns the functions by their VFIO nodes, and nodeNumbers the
	// nodes by their device numbers.
	processes   func() processes
	behind      func() map[string][]pci.Address
	nodeNumbers func() map[string]string
	links       func() (*Links, Fact)
	nextBoot    func() []kernelargs.Line

	mu        sync.Mutex // guards the following fields
	files     map[string]Fact
	tails     map[string]Fact
	lists     map[string]Fact
	judger    *isolation.Judger // of Snapshot
	judgments map[pci.Address]isolation.Judgment

	memo    sync.Map // of [Memo]
	stats   sync.Map // path to Stat
	real    sync.Map // path to the target of its link, or "" if it is not a link
	decoded sync.Map // name and text of a journal's file to its record
}

// New returns the node of the snapshot, with the tenancies that its journal records. The caller owns the file system, and must keep
// it open while it uses the node.
func New(fsys *sysfs.FS, s *device.Snapshot) *Node {
	n := &Node{
		Snapshot: s, fs: fsys, judger: isolation.NewJudger(s),
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

// Judgment returns the judgment of package isolation on a function of the snapshot. Each function is judged once.
func (n *Node) Judgment(f *device.Function) isolation.Judgment {
	n.mu.Lock()
	defer n.mu.Unlock()
	j, ok := n.judgments[f.Address]
	if !ok {
		j = n.judger.Judge(f)
		n.judgments[f.Address] = j
	}
	return j
}

// maxFile is the largest number of bytes that are read of a file. Files such as /proc/kallsyms are too long to read completely.
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

// ReadTail returns the end of a file, such as a log. [Node.Read] returns the beginning.
func (n *Node) ReadTail(name string) Fact {
	name = strings.TrimPrefix(path.Clean(name), "/")
	return n.once(n.tails, name, func() Fact {
		data, err := n.fs.ReadTail(name, maxFile)
		return fact(name, strings.TrimSpace(string(data)), "read", err)
	})
}

// List returns the names in a directory, sorted as strings, and the fact with these names.
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
	// The lock is not held here, because a read of sysfs may wait for a device.
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
	// ENOTDIR: an element of the path that should be a directory is a file, so the path does not exist.
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

// Functions returns the functions of the given types, by address. Without types, it returns the assignable functions: GPUs and
// their VFs, PFs, VFs, NVMe drives and accelerators.
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

// Memo returns the value of a key. It calls make for the first call with the key only. Readers of many files keep their results
// with it. The type of a key belongs to the reader's package, so that keys of different readers differ.
func Memo[T any](n *Node, key any, make func() T) T {
	once, _ := n.memo.LoadOrStore(key, sync.OnceValue(func() any { return make() }))
	return once.(func() any)().(T)
}

// Status is how a read ended.
type Status int

// Statuses. Denied is a lack of privilege. Broken is any other error.
const (
	Present Status = iota
	Absent
	Denied
	Broken
)

// Fact is the result of one read of the node.
type Fact struct {
	// Path is the path on the node, with its leading slash.
	Path string
	// Value is the content without leading and trailing white space. For a directory, it is the names, one a line.
	Value  string
	Status Status
	// How is the field How of [rule.Evidence].
	How string
	// Err says what went wrong if Status is Denied or Broken.
	Err string
	// Needs is the privilege that the read needs, if any.
	Needs string
}

// OK reports whether the read succeeded, so that Value is valid.
func (f Fact) OK() bool { return f.Status == Present }

// BrokenBy returns the fact as Broken, for a file whose content is unusable because of err.
func (f Fact) BrokenBy(err error) Fact {
	f.Status, f.Err = Broken, err.Error()
	return f
}

// Known reports whether the fact is certain: the value was read, or it does not exist.
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

// On reports whether the value is a boolean parameter, as the kernel prints it, that is set.
func (f Fact) On() bool {
	on, _ := kernelargs.Bool(f.Value)
	return f.OK() && f.Value != "" && on
}

// Words splits the value at spaces.
func (f Fact) Words() []string { return strings.Fields(f.Value) }

// NotThere is the error of evidence whose status is Absent.
const NotThere = "not there"

// maxEvidence is the longest value in evidence, in bytes.
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

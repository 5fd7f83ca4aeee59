// Package node joins the parts of kata-vfio on one node: where its files are, and which implementation serves each
// interface of packages prepare and maintain. The plugin, its commands, benchmarks and the lab's tests open a node through it,
// and so take the same path.
package node

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/bind"
	"github.com/kata-vfio/kata-vfio/pkg/cdi"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/fabric"
	"github.com/kata-vfio/kata-vfio/pkg/inventory"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger/writer"
	"github.com/kata-vfio/kata-vfio/pkg/maintain"
	"github.com/kata-vfio/kata-vfio/pkg/network/podnet"
	"github.com/kata-vfio/kata-vfio/pkg/network/vf"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
	"github.com/kata-vfio/kata-vfio/pkg/prepare/effects"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/control"
	"github.com/kata-vfio/kata-vfio/pkg/vfio"
)

// undoLimit bounds the undo of a failed or canceled Prepare.
const undoLimit = 20 * time.Second

// recoverLimit bounds the recovery of one claim at start, which may wait for a
// VM to end and reset its devices.
const recoverLimit = time.Minute

// Config says where a node's files lie and how long to wait for it.
type Config struct {
	// Root is the node's root: a directory that holds sys, proc, dev, lib, run
	// and var; "/" on the node itself.
	Root string
	// StateDir, RunDir and CDIDir are below the root: the journal's parent, the
	// locks' parent, and the runtimes' CDI directory.
	StateDir, RunDir, CDIDir string
	// Node is the node config: it says which functions the plugin publishes. Nil means nodeconfig.Default.
	Node *v1alpha1.NodeConfig
	// Sanitizers are the profiles of sanitizing stages; nil if there are none.
	Sanitizers *v1alpha1.Sanitizers
	// Name is the node's name in the cluster. If it is empty, the pools of a claim's devices are not compared with the node's.
	Name string
	// Ledger configures the node's history. Its Dir is below the root, "ledger" in StateDir if it is empty. The
	// fields about the node itself are filled in.
	Ledger writer.Config
	// Server gives a claim's devices to VMs; nil if no VM asks for devices. See [prepare.Config].
	Server prepare.Server
	// HotPlug says that VMs get their functions while they run. See [plan.Node].
	HotPlug bool
	// HotPlugWindow is how much memory space a VM has for a function that is hot-plugged; 0 if VMs boot with their functions. See
	// [plan.Node].
	HotPlugWindow uint64
	// WriteLimit is how long one write to sysfs may take before its function is fenced.
	WriteLimit time.Duration
	// HolderWait is how long Unprepare waits for holders to end.
	HolderWait time.Duration
	// Observe is called for each step; it may be nil.
	Observe effects.Observer
	// Tracer follows the calls for claims; it may be nil. See [prepare.Config].
	Tracer prepare.Tracer
	// Log gets changes to interfaces of physical endpoints; it may be nil.
	Log *slog.Logger
	// Checks returns the failed checks that count for a function; it may be nil. It is called for each claim, not when the node is opened.
	Checks prepare.Checks
	// Fabric calls Fabric Manager; nil means the client that the node config asks for.
	Fabric fabric.Manager
	// Inventory makes the inventory; nil is [Scanning].
	Inventory func(*sysfs.FS) (effects.Inventory, error)
}

// Defaults for Config.
const (
	DefaultStateDir   = "var/lib/kata-vfio"
	DefaultRunDir     = "run/kata-vfio"
	DefaultCDIDir     = cdi.DefaultDir
	DefaultWriteLimit = 20 * time.Second
)

// Node is an opened node. The caller closes it.
type Node struct {
	Preparer   *prepare.Preparer
	Maintainer *maintain.Maintainer
	Parts      effects.Parts
	// Node says which functions are ours.
	Node *v1alpha1.NodeConfig
	// Kernel writes to sysfs; nil if the node was opened by [Look].
	Kernel *control.Control
	// History is the node's ledger; nil like Kernel.
	History *writer.Writer
	// PFs are the node's physical functions with their VFs; nil like Kernel.
	PFs *vf.Policy

	writer *control.RootWriter
	fabric *fabricClient // nil like Kernel
}

// Records returns the journal for reading; it makes nothing.
func (c *Config) Records() *journal.Store {
	return journal.OpenReadOnly(c.JournalDir())
}

// JournalDir is the directory of the journal, by its path here.
func (c *Config) JournalDir() string { return filepath.Join(c.Root, c.StateDir, "journal") }

// Reserves keep room on the disks of the journal and the ledger.
func (c *Config) Reserves() journal.Reserves {
	return journal.Reserves{Dirs: []string{filepath.Join(c.Root, c.StateDir), c.LedgerDir()}}
}

// RunPath is where the locks' parent is, by its path here.
func (c *Config) RunPath() string { return filepath.Join(c.Root, c.RunDir) }

// LedgerDir is the directory of the ledger, by its path here.
func (c *Config) LedgerDir() string {
	return filepath.Join(c.Root, cmp.Or(c.Ledger.Dir, filepath.Join(c.StateDir, "ledger")))
}

// history returns the node's ledger. The ledger is opened by its first event, not here. So on a node whose ledger can't be written,
// Unprepare goes as far as is safe, and then fails with the reason.
func (c *Config) history(fs *sysfs.FS) *writer.Writer {
	full := c.Ledger
	full.Dir = c.LedgerDir()
	full.BootID, _ = fs.ReadString("proc/sys/kernel/random/boot_id") // the ledger's events go without it if it can't be read
	id, err := fs.ReadString("etc/machine-id")
	if err != nil || id == "" {
		id, _ = fs.ReadString("sys/class/dmi/id/product_uuid") // a container has no /etc of its node
	}
	full.Machine = writer.MachineHash(id)
	return writer.New(full)
}

// Look opens the node for Plan alone: it makes no directory, takes no lock and
// can't write.
func Look(c Config) (*Node, error) {
	fs, err := sysfs.Open(c.Root)
	if err != nil {
		return nil, err
	}
	scan := Scanning
	if c.Inventory != nil {
		scan = c.Inventory
	}
	inv, err := scan(fs)
	if err != nil {
		return nil, errors.Join(err, fs.Close())
	}
	n := &Node{Node: c.Node, Parts: effects.Parts{FS: fs, Inventory: inv, Journal: c.Records(), Observe: c.Observe}}
	n.join(&c, c.policy(fs))
	return n, nil
}

// join makes the Preparer and the Maintainer from the node's parts.
func (n *Node) join(c *Config, e maintain.Eswitches) {
	n.Preparer = prepare.New(prepare.Config{
		Parts: n.Parts, Node: c.Node, Sanitizers: c.Sanitizers, NodeName: c.Name, Checks: c.Checks, Server: c.Server, HotPlug: c.HotPlug, HotPlugWindow: c.HotPlugWindow,
		HolderWait: c.HolderWait, UndoLimit: undoLimit, RecoverLimit: recoverLimit, Tracer: c.Tracer,
	})
	n.Maintainer = maintain.New(n.Preparer.Order(), e)
}

// MarkEarlier calls [prepare.Preparer.MarkEarlier].
func (n *Node) MarkEarlier(ctx context.Context) error { return n.Preparer.MarkEarlier(ctx) }

// SweepSpecs calls [prepare.Preparer.SweepSpecs].
func (n *Node) SweepSpecs(ctx context.Context) ([]string, error) { return n.Preparer.SweepSpecs(ctx) }

// GiveBackOrphans calls [maintain.Maintainer.GiveBackOrphans].
func (n *Node) GiveBackOrphans(ctx context.Context) ([]maintain.Orphan, error) {
	return n.Maintainer.GiveBackOrphans(ctx)
}

// Recover calls [prepare.Preparer.Recover], and then [maintain.Maintainer.AfterRecover].
func (n *Node) Recover(ctx context.Context) (*prepare.Recovery, error) {
	r, err := n.Preparer.Recover(ctx)
	if err != nil {
		return r, err
	}
	return r, n.Maintainer.AfterRecover(ctx, r)
}

// Open opens the node for work, and makes the directories it writes to.
func Open(c Config) (*Node, error) {
	n, err := Look(c)
	if err != nil {
		return nil, err
	}
	if err := c.places(&n.Parts); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	if n.writer, err = control.NewWriter(c.Root); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	n.Kernel = control.New(n.writer, n.Parts.FS, c.WriteLimit)
	n.Parts.Executor = bind.New(n.Parts.FS, n.Kernel, bind.Modprobe{Root: c.Root}, n.exclude)
	n.Parts.Holders = vfio.NewProcesses(n.Parts.FS)
	n.fabric = c.fabricManager()
	n.Parts.Providers = bind.Providers(n.Parts.FS, n.Kernel, n.fabric)
	n.PFs = c.policy(n.Parts.FS)
	n.Parts.VFs = n.PFs
	n.Parts.Interfaces = &podnet.Attacher{FS: n.Parts.FS, Proc: filepath.Join(c.Root, "proc"), Log: c.log()}
	n.Parts.Addresses = &podnet.Plugins{Dirs: c.binDirs(), Limit: podnet.DefaultLimit}
	n.History = c.history(n.Parts.FS)
	n.Parts.Ledger = n.History
	n.join(&c, n.PFs)
	if n.Node != nil && n.Node.Fabric != nil {
		n.fabric.begun, n.fabric.check = n.markGPUs, n.checkClean
	}
	return n, nil
}

// exclude is [bind.Exclude] on the node.
func (n *Node) exclude(ctx context.Context, set []pci.Address) (hotReset func() error, end func(), err error) {
	x, err := vfio.Exclude(ctx, n.Parts.FS, set)
	if err != nil {
		return nil, nil, err
	}
	return x.HotReset, x.End, nil
}

func (c *Config) log() *slog.Logger {
	if c.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return c.Log
}

// binDirs are where the binaries of CNI plugins lie, by their paths here.
func (c *Config) binDirs() []string {
	dirs := []string{v1alpha1.DefaultCNIBinDir}
	if c.Node != nil && c.Node.CNIBinDirs != nil {
		dirs = slices.Clone(c.Node.CNIBinDirs)
	}
	for i := range dirs {
		dirs[i] = filepath.Join(c.Root, dirs[i])
	}
	return dirs
}

// policy reaches the node's PFs.
func (c *Config) policy(fs *sysfs.FS) *vf.Policy {
	proc := filepath.Join(c.Root, "proc")
	return &vf.Policy{FS: fs, Links: vf.NewRtnetlink(proc), Switches: vf.NewDevlink(proc)}
}

// places opens the directories that a node opened by [Open] writes to, and puts them into the parts.
func (c *Config) places(to *effects.Parts) error {
	records, err := journal.Open(c.JournalDir())
	if err != nil {
		return err
	}
	locks, err := journal.NewLocks(filepath.Join(c.RunPath(), "locks"))
	if err != nil {
		return err
	}
	if err := locks.Sweep(effects.ClaimLocks); err != nil {
		return err
	}
	specs, err := cdi.Open(filepath.Join(c.Root, c.CDIDir))
	if err != nil {
		return err
	}
	to.Journal, to.Locks, to.Specs, to.Room = records, locks, specs, c.Reserves()
	return nil
}

// Close gives back what Open or Look took.
func (n *Node) Close() error {
	err := n.Parts.FS.Close()
	if n.writer != nil {
		err = errors.Join(err, n.writer.Close())
	}
	return err
}

// Scanning returns the inventory of a command that runs once: it scans the
// node when first asked, and reads again only what Refresh names.
func Scanning(fs *sysfs.FS) (effects.Inventory, error) { return &scanning{fs: fs}, nil }

type scanning struct {
	fs *sysfs.FS

	mu   sync.Mutex // guards last
	last *device.Snapshot
}

// Snapshot implements [effects.Inventory].
func (s *scanning) Snapshot(ctx context.Context) (*device.Snapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last != nil {
		return s.last, nil
	}
	snap, err := inventory.Scan(ctx, s.fs)
	if err != nil {
		return nil, err
	}
	s.last = snap
	return snap, nil
}

// Refresh implements [effects.Inventory].
func (s *scanning) Refresh(ctx context.Context, addrs []pci.Address) (*device.Snapshot, error) {
	return s.refresh(ctx, addrs, inventory.Lightly())
}

// RefreshFunctions implements [effects.Inventory].
func (s *scanning) RefreshFunctions(ctx context.Context, addrs []pci.Address) (*device.Snapshot, error) {
	return s.refresh(ctx, addrs, inventory.Lightly(), inventory.KeepHost())
}

func (s *scanning) refresh(ctx context.Context, addrs []pci.Address, opts ...inventory.Option) (*device.Snapshot, error) {
	last, err := s.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	snap, err := inventory.Rescan(ctx, s.fs, last, addrs, opts...)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = snap
	return snap, nil
}

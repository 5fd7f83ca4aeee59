package bench

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/bind"
	"github.com/kata-vfio/kata-vfio/pkg/cdi"
	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/ledger/writer"
	"github.com/kata-vfio/kata-vfio/pkg/network/vf"
	"github.com/kata-vfio/kata-vfio/pkg/network/vf/vftest"
	"github.com/kata-vfio/kata-vfio/pkg/node"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
	"github.com/kata-vfio/kata-vfio/pkg/prepare/effects"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/control"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
	"github.com/kata-vfio/kata-vfio/pkg/vfio"
)

// preparerOn returns a plugin's Preparer on a scripted node, with journal, ledger and CDI specs. It runs on this machine's
// own processor: only the kernel's answers to writes are scripted.
func preparerOn(tb testing.TB, k *sysfstest.Kernel, observe effects.Observer, changes ...func(*prepare.Config)) *prepare.Preparer {
	tb.Helper()
	return preparerThrough(tb, k, openNode(tb, k), observe, changes...)
}

// openNode returns the scripted node's files.
func openNode(tb testing.TB, k *sysfstest.Kernel) *sysfs.FS {
	tb.Helper()
	fs, err := sysfs.Open(k.Root())
	must(tb, err)
	tb.Cleanup(func() { _ = fs.Close() })
	return fs
}

// preparerThrough is preparerOn that reads the node through fs.
func preparerThrough(tb testing.TB, k *sysfstest.Kernel, fs *sysfs.FS, observe effects.Observer, changes ...func(*prepare.Config)) *prepare.Preparer {
	tb.Helper()
	inventory, err := node.Scanning(fs)
	must(tb, err)
	dir := tb.TempDir()
	records, err := journal.Open(filepath.Join(dir, "journal"))
	must(tb, err)
	locks, err := journal.NewLocks(filepath.Join(dir, "locks"))
	must(tb, err)
	specs, err := cdi.Open(filepath.Join(dir, "cdi"))
	must(tb, err)
	links := vftest.New(tb, openNode(tb, k), vftest.Igb()) // through files of its own: it is not the plugin's
	c := prepare.Config{
		Parts: effects.Parts{
			FS: fs, Inventory: inventory, Journal: records, Locks: locks, Specs: specs, Holders: vfio.NewProcesses(fs),
			Executor: bind.New(fs, control.New(k, fs, time.Minute), k, k.Exclude),
			VFs:      &vf.Policy{FS: fs, Links: links, Switches: links.Switches()},
			Ledger:   newLedger(tb, nil),
			Observe:  observe,
		},
		UndoLimit: time.Minute,
	}
	for _, change := range changes {
		change(&c)
	}
	return prepare.New(c)
}

// newLedger returns an empty ledger. metrics may be nil.
func newLedger(tb testing.TB, metrics writer.Metrics) *writer.Writer {
	tb.Helper()
	dir := filepath.Join(tb.TempDir(), "ledger")
	return writer.New(writer.Config{Dir: dir, Node: "node-1", BootID: "b", Actor: ledger.Actor{Component: "bench"}, Metrics: metrics})
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// scriptedGPU is a node with a GPU, and scriptedVF one with a NIC of two VFs.
func scriptedGPU(k *sysfstest.Kernel) pci.Address { return k.AddGPU(0x30) }

func scriptedVF(k *sysfstest.Kernel) pci.Address {
	_, vfs := k.AddNIC(0x21, 2)
	return vfs[0]
}

// request asks for a device, whose name begins with its type: gpu or vf.
func request(kind string, a pci.Address) *claim.Request {
	d := claim.Device{Request: kind, Pool: "node", Name: kind + "-" + a.Label(), Address: a}
	d.VFIO.Default()
	return &claim.Request{UID: a.Label(), Devices: []claim.Device{d}}
}

package bench

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/bind"
	"github.com/kata-vfio/kata-vfio/pkg/cdi"
	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/ledger/writer"
	"github.com/kata-vfio/kata-vfio/pkg/node"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
	"github.com/kata-vfio/kata-vfio/pkg/prepare/effects"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/control"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
	"github.com/kata-vfio/kata-vfio/pkg/vfio"
)

// keptClaims have a record when the plugin starts, every other one in quarantine.
func keptClaims() int { return sized(100, 4) }

// keptLedger is how large the ledger is by then: as large as the plugin lets it be.
func keptLedger() int64 { return sized[int64](writer.DefaultRetainBytes, 1<<20) }

// BenchmarkStart is what a start of the plugin takes on account of its records and its ledger, until it can register
// with the kubelet: all records are brought to their end, and their events are the oldest of the ledger. It is set
// against a bare read of the ledger, from memory and from the disk (where the temporary directory is on one).
func BenchmarkStart(b *testing.B) {
	n := newKeptNode(b)
	for _, from := range []string{"memory", "disk"} {
		b.Run(from, func(b *testing.B) {
			var starting, reading time.Duration
			rounds := 0
			for b.Loop() {
				rounds++
				n.cache(b, from == "memory")
				reading += timed(func() { n.read(b) })
				n.cache(b, from == "memory")
				starting += timed(func() { n.start(b) })
			}
			b.ReportMetric(0, "ns/op")
			reportAim(b, starting.Seconds()/float64(rounds), "s-start", 2)
			b.ReportMetric(reading.Seconds()/float64(rounds), "s-read")
			b.ReportMetric(starting.Seconds()/reading.Seconds(), "start/read")
		})
	}
}

// keptNode is a scripted node with records and a ledger.
type keptNode struct {
	k    *sysfstest.Kernel
	fs   *sysfs.FS
	boot string
	dir  string
}

func newKeptNode(b *testing.B) *keptNode {
	b.Helper()
	n := &keptNode{k: sysfstest.New(b), dir: b.TempDir()}
	var err error
	if n.fs, err = sysfs.Open(n.k.Root()); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = n.fs.Close() })
	if n.boot, err = n.fs.ReadString("proc/sys/kernel/random/boot_id"); err != nil {
		b.Fatal(err)
	}
	gpus := make([]pci.Address, keptClaims())
	for i := range gpus {
		gpus[i] = n.k.AddGPU(uint8(0x30 + i))
	}
	p := n.plugin(b)
	for i, a := range gpus {
		n.keep(b, p, fmt.Sprint("kept-", i), a, i%2 == 1)
	}
	n.fill(b)
	return n
}

// plugin is one as its process begins it.
func (n *keptNode) plugin(b *testing.B) *prepare.Preparer {
	b.Helper()
	records, err := journal.Open(filepath.Join(n.dir, "journal"))
	if err != nil {
		b.Fatal(err)
	}
	locks, err := journal.NewLocks(filepath.Join(n.dir, "locks"))
	if err != nil {
		b.Fatal(err)
	}
	specs, err := cdi.Open(filepath.Join(n.dir, "cdi"))
	if err != nil {
		b.Fatal(err)
	}
	seen, err := node.Scanning(n.fs)
	if err != nil {
		b.Fatal(err)
	}
	kernel := control.New(n.k, n.fs, time.Minute)
	return prepare.New(prepare.Config{
		Parts: effects.Parts{
			FS: n.fs, Inventory: seen, Locks: locks, Journal: records, Specs: specs,
			Executor: bind.New(n.fs, kernel, n.k, n.k.Exclude), Holders: vfio.NewProcesses(n.fs), Ledger: n.ledger(),
		},
		UndoLimit: time.Minute, RecoverLimit: time.Minute,
	})
}

func (n *keptNode) ledger() *writer.Writer {
	return writer.New(writer.Config{Dir: filepath.Join(n.dir, "ledger"), Node: "node-1", BootID: n.boot, RetainBytes: 2 * keptLedger()})
}

// keep prepares a claim, and may have its reset fail after that.
func (n *keptNode) keep(b *testing.B, p *prepare.Preparer, uid string, a pci.Address, quarantine bool) {
	b.Helper()
	d := claim.Device{Request: "gpu", Pool: "node", Name: "gpu-" + a.Label(), Address: a}
	d.VFIO.Default()
	req := &claim.Request{UID: uid, Namespace: "tenant-a", Name: uid, Devices: []claim.Device{d}}
	if _, err := p.Prepare(b.Context(), req); err != nil {
		b.Fatal(err)
	}
	if !quarantine {
		return
	}
	n.k.OnReset(a, func(string) (sysfstest.ResetEffect, error) { return 0, unix.EIO })
	_, err := p.Unprepare(b.Context(), uid)
	if _, quarantined := errors.AsType[*prepare.QuarantinedError](err); !quarantined {
		b.Fatalf("unprepare: %v; want a quarantine", err)
	}
}

// fill appends other claims' lives until the ledger is large, its first and last segments by one write for each event.
func (n *keptNode) fill(b *testing.B) {
	b.Helper()
	w := n.ledger()
	for i := 0; ; i++ {
		size, single := n.size(b), 1
		if size >= keptLedger() {
			return
		}
		if size > writer.DefaultSegmentBytes && size < keptLedger()-writer.DefaultSegmentBytes {
			single = 1000
		}
		for range 1000 / single {
			if _, err := w.Append(b.Context(), slices.Repeat([]ledger.Event{lived(i)}, single)...); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// lived is one of the events of a claim that comes and goes.
func lived(i int) ledger.Event {
	gpu := ledger.Device{
		Address: pci.Address{Bus: 0x3b}, Name: "gpu-0000-3b-00-0", Role: "device", Vendor: 0x10de, Device: 0x2330, Group: new(59), Pool: "node",
		GroupMembers: []pci.Address{{Bus: 0x3b}}, Node: "/dev/vfio/59", Backend: "Legacy", Switch: &pci.Address{Bus: 0x3a},
	}
	return ledger.Event{
		Type: ledger.Prepare, Result: ledger.OK, Claim: &ledger.Claim{UID: fmt.Sprint("4c1ab9d8-9d5c-4d27-a11e-", i), Namespace: "tenant-b", Name: "gpu"},
		Pods: []ledger.Pod{{UID: "7be4c3a2-4f53-4b0c-8f9d-0c5b6a7d8e9f", Name: "train-0"}}, Devices: []ledger.Device{gpu},
	}
}

// start is what the plugin does with its records and ledger before it registers.
func (n *keptNode) start(b *testing.B) {
	b.Helper()
	p := n.plugin(b)
	if _, err := p.Order().Effects.Ledger.Append(b.Context(), ledger.Event{Type: ledger.Start, Result: ledger.OK}); err != nil {
		b.Fatal(err)
	}
	r, err := p.Recover(b.Context())
	if err != nil || len(r.Unfinished) > 0 || len(r.Kept)+len(r.Quarantined) != keptClaims() {
		b.Fatalf("recover: %+v, %v", r, err)
	}
}

// read reads the ledger as cat does.
func (n *keptNode) read(b *testing.B) {
	b.Helper()
	buffer := make([]byte, 128<<10)
	for _, path := range n.files(b) {
		f, err := os.Open(path)
		if err != nil {
			b.Fatal(err)
		}
		for err == nil {
			_, err = f.Read(buffer)
		}
		if err := f.Close(); err != nil {
			b.Fatal(err)
		}
		if !errors.Is(err, io.EOF) {
			b.Fatal(err)
		}
	}
}

// cache has the ledger in memory, or forgotten by the kernel.
func (n *keptNode) cache(b *testing.B, there bool) {
	b.Helper()
	if there {
		n.read(b)
		return
	}
	for _, path := range n.files(b) {
		f, err := os.Open(path)
		if err != nil {
			b.Fatal(err)
		}
		if err := errors.Join(unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED), f.Close()); err != nil {
			b.Fatal(err)
		}
	}
}

func (n *keptNode) files(b *testing.B) []string {
	b.Helper()
	paths, err := filepath.Glob(filepath.Join(n.dir, "ledger", "*.jsonl"))
	if err != nil {
		b.Fatal(err)
	}
	return paths
}

func (n *keptNode) size(b *testing.B) (all int64) {
	b.Helper()
	for _, path := range n.files(b) {
		info, err := os.Stat(path)
		if err != nil {
			b.Fatal(err)
		}
		all += info.Size()
	}
	return all
}

package prepare_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/bind"
	"github.com/kata-vfio/kata-vfio/pkg/cdi"
	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/fabric/fabrictest"
	"github.com/kata-vfio/kata-vfio/pkg/inventory"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/ledger/writer"
	"github.com/kata-vfio/kata-vfio/pkg/maintain"
	"github.com/kata-vfio/kata-vfio/pkg/network/podnet"
	"github.com/kata-vfio/kata-vfio/pkg/network/vf"
	"github.com/kata-vfio/kata-vfio/pkg/network/vf/vftest"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
	"github.com/kata-vfio/kata-vfio/pkg/prepare/effects"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/control"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
	"github.com/kata-vfio/kata-vfio/pkg/vfio"
)

// TestMain keeps the scripted nodes, thousands of small files, in memory where
// the machine has a file system there.
func TestMain(m *testing.M) {
	const memory = "/dev/shm"
	if _, err := os.Stat(memory); err == nil && os.Getenv("TMPDIR") == "" {
		_ = os.Setenv("TMPDIR", memory)
	}
	os.Exit(m.Run())
}

// world is a scripted node with everything that Prepare touches.
type world struct {
	t       *testing.T
	k       *sysfstest.Kernel
	fs      *sysfs.FS
	records *journal.Store
	specs   *cdi.Dir
	locks   *journal.Locks
	history string // the ledger's directory
	links   *vftest.Links
	pods    *pods
	pool    *pool
	vf      *v1alpha1.VFConfig // of VFs that are asked for
	node    *v1alpha1.NodeConfig
	// fm is the Fabric Manager; nil if there is none. pair is the partition that the functions of requests are allocated as.
	fm   *fabrictest.Manager
	pair string
	// fifth is a provider that the product does not have; nil on a node without it.
	fifth *fifth
	// stages are the sanitizers of the cluster; nil if it has none.
	stages  *v1alpha1.Sanitizers
	name    string                 // the node's in the cluster; empty if pools are not compared
	network *v1alpha1.GuestNetwork // of the VFs of requests
	limit   time.Duration          // of a kernel write
	wait    time.Duration          // for holders
	recover time.Duration          // of one record
	// inventory is what plugins read the node through; nil for a fresh look each time.
	inventory effects.Inventory

	mu     sync.Mutex // guards events
	events []effects.Event
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, k: sysfstest.New(t), limit: 10 * time.Second, recover: time.Minute}
	var err error
	if w.fs, err = sysfs.Open(w.k.Root()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.fs.Close() })
	if w.records, err = journal.Open(filepath.Join(w.k.Root(), "var/lib/kata-vfio/journal")); err != nil {
		t.Fatal(err)
	}
	if w.locks, err = journal.NewLocks(filepath.Join(t.TempDir(), "locks")); err != nil {
		t.Fatal(err)
	}
	if w.specs, err = cdi.Open(filepath.Join(t.TempDir(), "cdi")); err != nil {
		t.Fatal(err)
	}
	w.history = filepath.Join(w.k.Root(), "var/lib/kata-vfio/ledger")
	w.links = vftest.New(t, w.fs, vftest.Igb())
	w.pods = &pods{fs: w.fs, placed: map[pci.Address]string{}}
	w.pool = newPool(t)
	return w
}

// plugin returns a plugin process on the node. Its effects pass through the
// power switch, which may be nil.
func (w *world) plugin(power *power, changes ...func(*prepare.Config)) *plugin {
	kernel := control.New(power.writer(w.k), w.fs, w.limit)
	policy := &vf.Policy{FS: w.fs, Links: power.links(w.links), Switches: power.switches(w.links.Switches())}
	var look effects.Inventory = &scanner{fs: w.fs}
	if w.inventory != nil {
		look = w.inventory
	}
	c := prepare.Config{
		Parts: effects.Parts{
			FS: w.fs, Inventory: look, Locks: w.locks,
			Executor: bind.New(w.fs, kernel, w.k, w.k.Exclude),
			Journal:  power.journal(w.records), Specs: power.specs(w.specs),
			Holders:    askedHolders{vfio.NewProcesses(w.fs), w.k},
			Ticks:      w.ticks,
			VFs:        policy,
			Providers:  bind.Providers(w.fs, kernel, power.manager(w.fm)),
			Interfaces: power.interfaces(w.pods),
			Addresses:  power.addresses(w.pool),
			Ledger:     power.ledger(w),
			Observe: func(e effects.Event) {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.events = append(w.events, e)
			},
		},
		Node: w.node, Sanitizers: w.stages, NodeName: w.name, HolderWait: w.wait, UndoLimit: 10 * time.Second, RecoverLimit: w.recover,
	}
	w.fifth.addTo(&c, power)
	for _, change := range changes {
		change(&c)
	}
	p := prepare.New(c)
	return &plugin{Preparer: p, Maintainer: maintain.New(p.Order(), policy)}
}

// ticks are the clock ticks since a boot in 1970. They go with the time of the test, which need not be the machine's.
func (w *world) ticks() uint64 { return journal.TicksIn(time.Duration(time.Now().UnixNano())) }

// plugin is all that works on claims and functions in a plugin's process.
type plugin struct {
	*prepare.Preparer
	*maintain.Maintainer
}

// Recover is that of a node; see package node.
func (p *plugin) Recover(ctx context.Context) (*prepare.Recovery, error) {
	r, err := p.Preparer.Recover(ctx)
	if err != nil {
		return r, err
	}
	return r, p.AfterRecover(ctx, r)
}

// bootID returns the node's boot.
func (w *world) bootID() string {
	w.t.Helper()
	boot, err := w.fs.ReadString("proc/sys/kernel/random/boot_id")
	if err != nil {
		w.t.Fatal(err)
	}
	return boot
}

// writer returns the ledger as a process opens it.
func (w *world) writer() *writer.Writer {
	return writer.New(writer.Config{Dir: w.history, Node: "node-1", BootID: w.bootID(), Actor: ledger.Actor{Component: "test"}})
}

// recorded returns the ledger's events of a claim, and verifies it. There is none
// where nothing was told yet.
// ledgerFiles returns what brings the ledger's segments back to what they are now.
func (w *world) ledgerFiles() (restore func()) {
	segments := func() map[string][]byte {
		all := map[string][]byte{}
		names, err := filepath.Glob(filepath.Join(w.history, "*"))
		for _, name := range names {
			if ledger.IsSegment(filepath.Base(name)) && err == nil {
				all[name], err = os.ReadFile(name)
			}
		}
		if err != nil {
			w.t.Error(err)
		}
		return all
	}
	were := segments()
	return func() {
		for name := range segments() {
			err := os.WriteFile(name, were[name], 0o600)
			if were[name] == nil {
				err = os.Remove(name)
			}
			if err != nil {
				w.t.Error(err)
			}
		}
	}
}

func (w *world) told(uid string) []ledger.Event {
	w.t.Helper()
	fsys := os.DirFS(w.history)
	if _, err := os.Stat(filepath.Join(w.history, ledger.SegmentName(0))); err != nil {
		return nil
	}
	if r, err := ledger.Verify(fsys, ledger.Options{}); err != nil || !r.OK() {
		w.t.Fatalf("ledger: %+v, %v; want it sound", r, err)
	}
	var events []ledger.Event
	for e, err := range ledger.Events(fsys) {
		if err != nil {
			w.t.Fatal(err)
		}
		if e.Event.Claim != nil && e.Event.Claim.UID == uid {
			events = append(events, *e.Event)
		}
	}
	return events
}

// request asks for the functions under one claim.
func (w *world) request(uid string, addrs ...pci.Address) *claim.Request {
	w.t.Helper()
	snap, err := inventory.Scan(w.t.Context(), w.fs)
	if err != nil {
		w.t.Fatal(err)
	}
	req := &claim.Request{UID: uid, Namespace: "tenant-a", Name: uid}
	for _, a := range addrs {
		d := claim.Device{Request: "dev", Pool: "node", Name: "gpu-" + a.Label(), Address: a, Pair: w.pair}
		if f, ok := snap.Function(a); ok {
			d.Name = f.Name()
			switch {
			case f.VF == nil:
			case w.network == nil:
				d.VF = w.vf
			default:
				d.VF = &v1alpha1.VFConfig{Network: w.network}
			}
		}
		d.VFIO.Default()
		req.Devices = append(req.Devices, d)
	}
	return req
}

// bindings returns the binding of every function but bridges.
func (w *world) bindings() map[pci.Address]plan.Binding {
	w.t.Helper()
	snap, err := inventory.Scan(w.t.Context(), w.fs)
	if err != nil {
		w.t.Fatal(err)
	}
	all := map[pci.Address]plan.Binding{}
	for i := range snap.Functions {
		f := &snap.Functions[i]
		if f.Type != device.Bridge {
			all[f.Address] = plan.Binding{Driver: f.Driver, Override: f.DriverOverride}
		}
	}
	return all
}

// record returns a claim's record, nil if there is none.
func (w *world) record(uid string) *journal.Record {
	w.t.Helper()
	rec, err := w.records.Load(uid)
	if err != nil {
		w.t.Fatal(err)
	}
	return rec
}

// hasSpec reports whether the claim has a CDI spec.
func (w *world) hasSpec(uid string) bool {
	_, err := w.specs.Read(uid)
	return err == nil
}

// mustPrepare prepares a claim on a fresh plugin.
func (w *world) mustPrepare(req *claim.Request) *journal.Record {
	w.t.Helper()
	rec, err := w.plugin(nil).Prepare(w.t.Context(), req)
	if err != nil {
		w.t.Fatal(err)
	}
	return rec
}

// scanner reads the whole node each time.
type scanner struct{ fs *sysfs.FS }

func (s *scanner) Snapshot(ctx context.Context) (*device.Snapshot, error) {
	return inventory.Scan(ctx, s.fs)
}

func (s *scanner) Refresh(ctx context.Context, _ []pci.Address) (*device.Snapshot, error) {
	return inventory.Scan(ctx, s.fs)
}

func (s *scanner) RefreshFunctions(ctx context.Context, addrs []pci.Address) (*device.Snapshot, error) {
	return s.Refresh(ctx, addrs)
}

// errCut is what effects return once the power is off.
var errCut = errors.New("the process is dead")

// power is the switch that crashes a plugin: effects are counted, and at the
// chosen one it goes off, before or after the effect. From then on nothing has
// an effect, so that what the plugin still does in its last moments is not
// seen, as with a process that is gone.
type power struct {
	at    int // the effect at which it goes off, from 1; 0 never
	after bool
	fail  error // when set, the effect fails with it once, and the power stays on

	mu    sync.Mutex
	count int
	off   bool
	// What a power failure takes back, since it is not on disk: the end of the ledger, and a record's last state.
	ledgerLost, journalLost func()
}

// lose takes back what was not on disk.
func (p *power) lose() {
	for _, lost := range []func(){p.ledgerLost, p.journalLost} {
		if lost != nil {
			lost()
		}
	}
}

// effect runs one effect, or not.
func (p *power) effect(do func() error) error {
	if p == nil {
		return do()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.off {
		return errCut
	}
	p.count++
	hit := p.count == p.at
	if hit && p.fail != nil {
		return p.fail
	}
	if hit && !p.after {
		p.off = true
		return errCut
	}
	err := do()
	if hit {
		p.off = true
		return errCut
	}
	return err
}

func (p *power) interfaces(i effects.Interfaces) effects.Interfaces {
	return cutInterfaces{i, p}
}

func (p *power) links(l vf.Links) vf.Links                 { return cutLinks{l, p} }
func (p *power) switches(s vf.Switches) vf.Switches        { return cutSwitches{s, p} }
func (p *power) writer(w control.Writer) control.Writer    { return cutWriter{p, w} }
func (p *power) ledger(w *world) effects.Ledger            { return cutLedger{w.writer(), p, w} }
func (p *power) journal(j effects.Journal) effects.Journal { return cutJournal{j, p} }
func (p *power) specs(s effects.Specs) effects.Specs       { return cutSpecs{s, p} }
func (c cutWriter) Write(path string, data []byte) error {
	return c.p.effect(func() error { return c.w.Write(path, data) })
}

func (c cutLedger) Append(ctx context.Context, events ...ledger.Event) (signed string, err error) {
	err = c.p.effect(func() error {
		signed, err = c.Ledger.Append(ctx, events...)
		return c.kept(err)
	})
	return signed, err
}

// AppendSoon keeps what the ledger is without the events.
func (c cutLedger) AppendSoon(ctx context.Context, events ...ledger.Event) error {
	return c.p.effect(func() error {
		restore := c.w.ledgerFiles()
		if c.p != nil && c.p.ledgerLost == nil {
			c.p.ledgerLost = restore
		}
		return c.Ledger.AppendSoon(ctx, events...)
	})
}

func (c cutLedger) Sync(ctx context.Context) error {
	return c.p.effect(func() error { return c.kept(c.Ledger.Sync(ctx)) })
}

// kept notes that all events so far are on disk.
func (c cutLedger) kept(err error) error {
	if err == nil && c.p != nil {
		c.p.ledgerLost = nil
	}
	return err
}

type cutLedger struct {
	effects.Ledger
	p *power
	w *world
}

func (c cutJournal) Save(r *journal.Record) error {
	return c.p.effect(func() error { return c.kept(c.Journal.Save(r)) })
}

// Replace keeps the record's former state.
func (c cutJournal) Replace(r *journal.Record) error {
	return c.p.effect(func() error {
		if former, err := c.Load(r.ID()); c.p != nil && err == nil && former != nil {
			c.p.journalLost = func() { _ = c.Journal.Save(former) }
		}
		return c.Journal.Replace(r)
	})
}

// kept notes that all records so far are on disk.
func (c cutJournal) kept(err error) error {
	if err == nil && c.p != nil {
		c.p.journalLost = nil
	}
	return err
}

func (c cutJournal) Delete(id string) error {
	return c.p.effect(func() error { return c.kept(c.Journal.Delete(id)) })
}

func (c cutJournal) MarkNeedsReset(ctx context.Context, all ...journal.ResetMark) error {
	return c.p.effect(func() error { return c.Journal.MarkNeedsReset(ctx, all...) })
}

func (c cutJournal) MarkDrained(ctx context.Context, d journal.Drain) error {
	return c.p.effect(func() error { return c.Journal.MarkDrained(ctx, d) })
}

func (c cutJournal) LiftDrain(ctx context.Context, d journal.Drain) error {
	return c.p.effect(func() error { return c.Journal.LiftDrain(ctx, d) })
}

func (c cutJournal) MarkClean(ctx context.Context, a pci.Address, id device.Identity) error {
	return c.p.effect(func() error { return c.Journal.MarkClean(ctx, a, id) })
}

func (c cutJournal) MarkUnsanitized(ctx context.Context, m journal.SanitizeMark) error {
	return c.p.effect(func() error { return c.Journal.MarkUnsanitized(ctx, m) })
}

func (c cutJournal) AcceptFirmware(ctx context.Context, p journal.SanitizeProof) error {
	return c.p.effect(func() error { return c.Journal.AcceptFirmware(ctx, p) })
}

func (c cutJournal) MarkSanitized(ctx context.Context, p journal.SanitizeProof) error {
	return c.p.effect(func() error { return c.Journal.MarkSanitized(ctx, p) })
}

// SpoilSanitized is an effect only if there is a proof.
func (c cutJournal) SpoilSanitized(ctx context.Context, a pci.Address, id device.Identity) error {
	if proofs, err := c.Sanitized(); err == nil && len(proofs) == 0 {
		return c.Journal.SpoilSanitized(ctx, a, id)
	}
	return c.p.effect(func() error { return c.Journal.SpoilSanitized(ctx, a, id) })
}

func (c cutSpecs) Write(uid string, spec *specs.Spec) error {
	return c.p.effect(func() error { return c.Specs.Write(uid, spec) })
}

func (c cutSpecs) Remove(uid string) error {
	return c.p.effect(func() error { return c.Specs.Remove(uid) })
}

func (c cutLinks) Write(ctx context.Context, number, index int, s device.VFSetting, to *device.VFSettings) error {
	return c.p.effect(func() error { return c.Links.Write(ctx, number, index, s, to) })
}

func (c cutInterfaces) Place(ctx context.Context, what podnet.Interface, at string) error {
	return c.p.effect(func() error { return c.Interfaces.Place(ctx, what, at) })
}

type cutInterfaces struct {
	effects.Interfaces
	p *power
}

func (c cutSwitches) SetMode(ctx context.Context, h vf.Handle, m vf.Mode) error {
	return c.p.effect(func() error { return c.Switches.SetMode(ctx, h, m) })
}

func (c cutSwitches) SetMAC(ctx context.Context, h vf.Handle, port uint32, mac string) error {
	return c.p.effect(func() error { return c.Switches.SetMAC(ctx, h, port, mac) })
}

type cutSwitches struct {
	vf.Switches
	p *power
}

type cutLinks struct {
	vf.Links
	p *power
}

type cutWriter struct {
	p *power
	w control.Writer
}

type cutJournal struct {
	effects.Journal
	p *power
}

type cutSpecs struct {
	effects.Specs
	p *power
}

package prepare_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/inventory"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

// uevents are the kernel's messages on their way to a Watcher. They are held back
// until the test lets them go.
type uevents struct {
	said   chan any // a Uevent, or an error
	closed chan struct{}

	mu   sync.Mutex // guards held
	held []inventory.Uevent
}

func holdUevents(k *sysfstest.Kernel) *uevents {
	e := &uevents{said: make(chan any, 1<<12), closed: make(chan struct{})}
	k.OnUevent(func(u sysfstest.Uevent) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.held = append(e.held, inventory.Uevent(u))
	})
	return e
}

// Next implements [inventory.Events].
func (e *uevents) Next() (inventory.Uevent, error) {
	select {
	case <-e.closed:
		return inventory.Uevent{}, os.ErrClosed
	case said := <-e.said:
		if err, ok := said.(error); ok {
			return inventory.Uevent{}, err
		}
		return said.(inventory.Uevent), nil
	}
}

// Close implements [inventory.Events].
func (e *uevents) Close() error {
	close(e.closed)
	return nil
}

// take returns what is held and forgets it.
func (e *uevents) take() []inventory.Uevent {
	e.mu.Lock()
	defer e.mu.Unlock()
	held := e.held
	e.held = nil
	return held
}

// A staleness is what becomes of the uevents of a change, and with them of what the
// plugin's Watcher knows.
type staleness struct {
	name string
	// arrive hands over what is held, amid each write of the plugin; nil for never.
	arrive func(*uevents)
}

func stalenesses() []staleness {
	return []staleness{
		{"lost", nil},
		{"late", func(e *uevents) {
			for _, u := range e.take() {
				e.said <- u
			}
		}},
		{"late and in another order", func(e *uevents) {
			held := e.take()
			slices.Reverse(held)
			for _, u := range held {
				e.said <- u
			}
		}},
		{"dropped by the kernel, which says so", func(e *uevents) {
			if len(e.take()) > 0 {
				e.said <- inventory.ErrOverrun
			}
		}},
	}
}

// watch has the world's plugins read the node through the real Watcher, whose
// uevents are held back from now on. Once the returned function is called they arrive
// amid the plugin's writes, which take until the Watcher has done with them.
func (w *world) watch(s *staleness) (arrive func()) {
	w.t.Helper()
	events := holdUevents(w.k)
	watcher, err := inventory.WatchBy(w.t.Context(), w.fs, events)
	if err != nil {
		w.t.Fatal(err)
	}
	w.inventory = watcher
	if s.arrive == nil {
		return func() {} // nobody updates the snapshot, not even after a look has shown that it is old
	}
	ctx, stop := context.WithCancel(w.t.Context())
	done := make(chan error, 1)
	go func() { done <- watcher.Run(ctx) }()
	w.t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			w.t.Error(err)
		}
	})
	return func() {
		w.k.AfterWrite(func(string, string) {
			s.arrive(events)
			time.Sleep(time.Second)
		})
	}
}

// A change is what becomes of the node before an act, unseen by the Watcher.
type change struct {
	name string
	// make makes it, and reports whether it can be on this node.
	make func(w *world, a pci.Address) bool
}

// replaced begins the names of changes after which an act on a claim that had the function must not write to it.
const replaced = "another device is in its place"

// changes are all kinds of changes that decide on a function.
func changes() []change {
	onGPU := func(do func(w *world, a pci.Address)) func(*world, pci.Address) bool {
		return func(w *world, a pci.Address) bool {
			if w.function(a).VF != nil {
				return false
			}
			do(w, a)
			return true
		}
	}
	onVF := func(do func(w *world, vf, pf pci.Address)) func(*world, pci.Address) bool {
		return func(w *world, a pci.Address) bool {
			f := w.function(a)
			if f.VF == nil || w.driver(f.VF.PF) != "igb" {
				return false
			}
			do(w, a, f.VF.PF)
			return true
		}
	}
	always := func(do func(w *world, a pci.Address)) func(*world, pci.Address) bool {
		return func(w *world, a pci.Address) bool {
			do(w, a)
			return true
		}
	}
	onMates := func(do func(w *world, mate pci.Address)) func(*world, pci.Address) bool {
		return func(w *world, a pci.Address) bool {
			mates := w.mates(a)
			for _, mate := range mates {
				do(w, mate)
			}
			return len(mates) > 0
		}
	}
	numVFs := func(w *world, pf pci.Address, n string) {
		if err := w.k.Write("sys/bus/pci/devices/"+pf.String()+"/sriov_numvfs", []byte(n)); err != nil {
			w.t.Fatal(err)
		}
	}
	return []change{
		{"none", always(func(*world, pci.Address) {})},
		{"the device is gone", always(func(w *world, a pci.Address) { w.k.Remove(a) })},
		{replaced, onGPU(func(w *world, a pci.Address) { w.k.Replace(sysfstest.NVMe(a)) })},
		{replaced + ", of its model", onGPU(func(w *world, a pci.Address) { w.k.Replace(sysfstest.GPU(a)) })},
		{"the device is in another group", onGPU(func(w *world, a pci.Address) {
			gpu := sysfstest.GPU(a)
			gpu.Group = 99
			w.k.Remove(a)
			w.k.Add(gpu)
		})},
		{"its group has another member", always(func(w *world, a pci.Address) {
			mate := sysfstest.NVMe(pci.Address{Bus: a.Bus, Device: 0x1f})
			mate.Group, _ = w.k.Group(a)
			w.k.Add(mate)
		})},
		{"somebody bound it to another driver", always(func(w *world, a pci.Address) {
			w.k.AddDriver("pci-stub", sysfstest.Driver{ManagesDMA: true, NoChildren: true})
			w.rebind(a, "pci-stub")
		})},
		{"it is on its host driver, and a process uses it there", func(w *world, a pci.Address) bool {
			if known, _ := w.fs.Exists("sys/bus/pci/drivers/nvidia"); !known || w.function(a).Vendor != 0x10de || len(w.mates(a)) > 0 {
				return false
			}
			w.k.AddNVIDIANodes()
			w.rebind(a, "nvidia")
			w.k.Hold("/dev/nvidia0", nobody, "python3", container)
			return true
		}},
		{"the clock jumped since its sandbox got it", func(w *world, _ pci.Address) bool {
			had := w.record(uid)
			if had == nil || had.Sandbox == nil {
				return false
			}
			w.jumpClock(time.Hour)
			return true
		}},
		{"somebody bound it to vfio-pci and has it open", func(w *world, a pci.Address) bool {
			if len(w.mates(a)) > 0 {
				return false // nobody can open a part of a group
			}
			w.rebind(a, "vfio-pci")
			w.hold(a)
			return true
		}},
		{"somebody bound what is in its group to another driver", onMates(func(w *world, mate pci.Address) {
			w.k.AddDriver("pci-stub", sysfstest.Driver{ManagesDMA: true, NoChildren: true})
			w.rebind(mate, "pci-stub")
		})},
		{"what was in its group is gone", onMates(func(w *world, mate pci.Address) { w.k.Remove(mate) })},
		{"another function is in its slot", onGPU(func(w *world, a pci.Address) {
			audio := sysfstest.Audio(pci.Address{Bus: a.Bus, Function: 7})
			w.k.Add(audio)
		})},
		{"its disk is mounted", func(w *world, a pci.Address) bool {
			disks := w.function(a).Children.Block
			if len(disks) > 0 {
				w.k.AddMount(disks[0], "/var/lib/data")
			}
			return len(disks) > 0
		}},
		{"it has the node's default route", func(w *world, a pci.Address) bool {
			netdevs := w.function(a).Children.Net
			if len(netdevs) > 0 {
				w.k.AddDefaultRoute(netdevs[0], "192.0.2.5/24", "192.0.2.1")
			}
			return len(netdevs) > 0
		}},
		{"the switch above it does not redirect any more", func(w *world, a pci.Address) bool {
			up := w.function(a).Upstream
			if len(up) < 3 {
				return false
			}
			w.k.SetACS(up[len(up)-1], 0)
			return true
		}},
		{"its card's functions do not redirect any more", func(w *world, a pci.Address) bool {
			if w.function(a).Capabilities.ACS == nil {
				return false
			}
			w.k.SetACS(a, 0)
			return true
		}},
		{"it fell off the bus", always(func(w *world, a pci.Address) { w.k.FallOff(a) })},
		{"it reported fatal errors", always(func(w *world, a pci.Address) { w.k.CountFatalErrors(a, 3) })},
		{"the PF has other VFs", onVF(func(w *world, _, pf pci.Address) {
			numVFs(w, pf, "0")
			numVFs(w, pf, "4")
		})},
		{"the PF has fewer VFs", onVF(func(w *world, _, pf pci.Address) {
			numVFs(w, pf, "0")
			numVFs(w, pf, "1")
		})},
		{"the PF has no VFs", onVF(func(w *world, _, pf pci.Address) { numVFs(w, pf, "0") })},
		{"the PF's driver is gone", onVF(func(w *world, _, _ pci.Address) { w.k.UnloadDriver("igb") })},
		{"the PF's driver was loaded again, and its VFs made again", onVF(func(w *world, _, pf pci.Address) {
			n := fmt.Sprint(len(w.k.VFs(pf)))
			w.k.UnloadDriver("igb")
			if err := w.k.Load(w.t.Context(), "igb"); err != nil {
				w.t.Fatal(err)
			}
			numVFs(w, pf, n)
		})},
	}
}

// jumpClock has the node's clock jump: what the claim's record says of times was written by it before.
func (w *world) jumpClock(by time.Duration) {
	w.t.Helper()
	had := w.record(uid)
	if had == nil {
		return
	}
	rec := *had
	before := time.Now().Add(-by).UTC().Format(time.RFC3339)
	rec.Since = before
	if rec.Sandbox != nil {
		sandbox := *rec.Sandbox
		sandbox.Since = before
		rec.Sandbox = &sandbox
	}
	if err := w.records.Save(&rec); err != nil {
		w.t.Fatal(err)
	}
}

// function returns a function as it is now.
func (w *world) function(a pci.Address) *device.Function {
	w.t.Helper()
	snap, err := inventory.Scan(w.t.Context(), w.fs)
	if err != nil {
		w.t.Fatal(err)
	}
	f, ok := snap.Function(a)
	if !ok {
		w.t.Fatalf("%s is not there, want it", a)
	}
	return f
}

// mates returns the other functions in a function's group.
func (w *world) mates(a pci.Address) []pci.Address {
	w.t.Helper()
	snap, err := inventory.Scan(w.t.Context(), w.fs)
	if err != nil {
		w.t.Fatal(err)
	}
	f, _ := snap.Function(a)
	g, ok := snap.GroupWith(f)
	if !ok {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(g.Members), func(m pci.Address) bool { return m == a })
}

// staleScenes are the scenes of crashes, and some in which more can change.
func staleScenes() []scene {
	return append(scenes(),
		scene{"a GPU below a switch with another one", func(w *world) []pci.Address {
			w.k.AddRoot(sysfstest.Root{Bus: 0x80})
			w.k.AddPort(sysfstest.Port{Address: pci.Address{Bus: 0x80, Device: 1}, Secondary: 0x81, Subordinate: 0x84})
			w.k.AddSwitch(sysfstest.Switch{Upstream: pci.Address{Bus: 0x81}, Secondary: 0x82, Ports: []sysfstest.Port{
				{Address: pci.Address{Bus: 0x82}, Secondary: 0x83}, {Address: pci.Address{Bus: 0x82, Device: 1}, Secondary: 0x84},
			}})
			w.k.Add(sysfstest.GPU(pci.Address{Bus: 0x83}), sysfstest.GPU(pci.Address{Bus: 0x84}))
			return []pci.Address{{Bus: 0x83}}
		}},
		scene{"a function of a card whose ACS keeps it apart", func(w *world) []pci.Address { return splitCard(w)[:1] }},
		scene{"a disk", func(w *world) []pci.Address {
			disk := w.k.AddNVMe(0x41)
			w.node = nodeConfig(matchAddress(disk))
			return []pci.Address{disk}
		}},
	)
}

// splitCard adds a card of two functions, which by their ACS are in IOMMU groups of their own.
func splitCard(w *world) []pci.Address {
	w.k.AddRootPort(0x3b)
	var all []pci.Address
	for i := range 2 {
		f := sysfstest.GPU(pci.Address{Bus: 0x3b, Function: uint8(i)})
		f.ResetMethods, f.Capabilities.ACS, f.Group = []string{"flr"}, sysfstest.FullACS(), 50+i
		w.k.Add(f)
		all = append(all, f.Address)
	}
	return all
}

// TestPrepareReadsACSAgain: a script switches ACS of a card's functions off after the Watcher has read them, and the
// kernel sends no uevent. Prepare refuses the function: requests can reach the other, which another tenant may have.
func TestPrepareReadsACSAgain(t *testing.T) {
	w := newWorld(t)
	card := splitCard(w)
	w.watch(&staleness{})
	for _, a := range card {
		w.k.SetACS(a, 0)
	}
	_, err := w.plugin(nil).Prepare(t.Context(), w.request(uid, card[0]))
	if refused := wantRefused(t, err); refused != nil && !refused.Has(rule.NotIsolated) {
		t.Errorf("refused: %v, want %s", err, rule.NotIsolated)
	}
	if driver := w.driver(card[0]); driver == "vfio-pci" {
		t.Error("the function is on vfio-pci")
	}
}

// staleActs are the acts of crashes whose stage is always the same: not what is cut off
// while functions are bound side by side.
func staleActs() []act {
	all := acts()
	return append(all[:3:3], act{"recover from a cut-off unprepare", func(w *world, addrs []pci.Address) {
		all[1].begin(w, addrs)
		_ = all[1].run(w, &power{at: 2, after: true}, addrs) // cut off before its resets
	}, func(w *world, p *power, _ []pci.Address) error {
		_, err := w.plugin(p).Recover(w.t.Context())
		return err
	}})
}

// An outcome is all that can be seen of an act.
type outcome struct {
	Err     string
	State   state
	VFs     []string // whose settings are not what they were
	Writes  []string
	History []string
}

// outcomeOf runs an act on a node of its own after a change, read through a Watcher
// that is so stale, or by a fresh look each time where it is nil; false if the
// change can't be on this node.
func outcomeOf(t *testing.T, sc *scene, a *act, c *change, s *staleness) (out outcome, ok bool) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		addrs := sc.build(w)
		arrive := func() {}
		if s != nil {
			arrive = w.watch(s)
		}
		a.begin(w, addrs)
		if ok = c.make(w, addrs[0]); !ok {
			return
		}
		arrive()
		before := len(w.k.Writes())
		err := a.run(w, nil, addrs)
		out = w.outcome(err, before)
	})
	return out, ok
}

func (w *world) outcome(err error, writesBefore int) outcome {
	out := outcome{State: w.state(), VFs: w.changedVFs()}
	if err != nil {
		out.Err = strings.ReplaceAll(err.Error(), w.k.Root(), "")
	}
	for _, write := range w.k.Writes()[writesBefore:] {
		out.Writes = append(out.Writes, fmt.Sprintf("%s <- %q: %v", write.Path, write.Value, write.Err))
	}
	slices.Sort(out.Writes) // groups go side by side
	for _, e := range w.told(uid) {
		out.History = append(out.History, summary(&e))
	}
	slices.Sort(out.History)
	return out
}

// wantNoWriteTo checks that no write names a function. Both looks could be wrong alike.
func wantNoWriteTo(t *testing.T, address string, writes []string) {
	t.Helper()
	for _, write := range writes {
		if strings.Contains(write, address) {
			t.Errorf("wrote %s, want no write to another device", write)
		}
	}
}

// TestStaleWatcher: what the plugin's Watcher knows may be old. Whatever has changed
// since, and whenever the uevents of that arrive, each act does exactly what it does by
// a fresh look: the same writes, the same end, the same words.
func TestStaleWatcher(t *testing.T) {
	var tried atomic.Int64
	t.Cleanup(func() { t.Logf("%d acts on a node that had changed", tried.Load()) })
	for _, sc := range staleScenes() {
		for _, a := range staleActs() {
			for _, c := range changes() {
				t.Run(strings.Join([]string{sc.name, a.name, c.name}, "/"), func(t *testing.T) {
					t.Parallel()
					fresh, ok := outcomeOf(t, &sc, &a, &c, nil)
					if !ok {
						return
					}
					if strings.HasPrefix(c.name, replaced) && a.name != "prepare" {
						wantNoWriteTo(t, "0000:3b:00.0", fresh.Writes)
					}
					for _, s := range stalenesses() {
						if s.arrive != nil && len(fresh.Writes) == 0 {
							continue // nothing arrives amid no writes
						}
						stale, _ := outcomeOf(t, &sc, &a, &c, &s)
						if diff := cmp.Diff(fresh, stale); diff != "" {
							t.Errorf("uevents %s (-want of a fresh look +got of the Watcher):\n%s", s.name, diff)
						}
						tried.Add(1)
					}
				})
			}
		}
	}
}

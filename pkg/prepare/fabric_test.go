package prepare_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/bind"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/fabric"
	"github.com/kata-vfio/kata-vfio/pkg/fabric/fabrictest"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// manager returns a Fabric Manager whose changes are effects.
func (p *power) manager(m *fabrictest.Manager) fabric.Manager {
	if m == nil {
		m = fabrictest.New(nil)
	}
	return cutManager{m, p}
}

type cutManager struct {
	*fabrictest.Manager
	p *power
}

func (m cutManager) Activate(ctx context.Context, id int) error {
	return m.p.effect(func() error { return m.Manager.Activate(ctx, id) })
}

func (m cutManager) Deactivate(ctx context.Context, id int) error {
	return m.p.effect(func() error { return m.Manager.Deactivate(ctx, id) })
}

// board makes the node one with an HGX H100 board: eight GPUs in the order of NVIDIA's example, Fabric Manager, and what it listed last.
func (w *world) board() {
	w.t.Helper()
	w.fabric(fabrictest.H100(), 1, 2, 3, 4, 5, 6, 7, 8)
}

// corner makes the node one with two GPUs of such a board, which is quicker to scan.
func (w *world) corner() {
	w.t.Helper()
	w.fabric(fabric.List{fabrictest.Partition(3, 1, 3), fabrictest.Partition(7, 1), fabrictest.Partition(9, 3)}, 1, 3)
}

func (w *world) fabric(l fabric.List, modules ...int) {
	w.t.Helper()
	w.fm = fabrictest.New(l)
	w.node = &v1alpha1.NodeConfig{Fabric: &v1alpha1.Fabric{}}
	for _, m := range modules {
		gpu := w.k.AddGPU(fabrictest.Buses()[m-1])
		w.node.Fabric.Modules = append(w.node.Fabric.Modules, v1alpha1.FabricModule{Module: new(m), Address: gpu})
	}
	w.node.Default()
	w.putState(fabric.State{Partitions: l})
}

// putState writes what Fabric Manager answered last.
func (w *world) putState(s fabric.State) {
	w.t.Helper()
	text, err := json.Marshal(s)
	if err != nil {
		w.t.Fatal(err)
	}
	path := filepath.Join(w.k.Root(), fabric.StateFile)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, text, 0o600)); err != nil {
		w.t.Fatal(err)
	}
}

// removeState removes what Fabric Manager answered last.
func (w *world) removeState() {
	w.t.Helper()
	if err := os.Remove(filepath.Join(w.k.Root(), fabric.StateFile)); err != nil {
		w.t.Fatal(err)
	}
}

// partition has the next requests ask for a partition, and returns its functions.
func (w *world) partition(name string) []pci.Address {
	w.t.Helper()
	parts, err := device.ParseParts(name)
	if err != nil {
		w.t.Fatal(err)
	}
	var addrs []pci.Address
	for _, p := range parts {
		addrs = append(addrs, p.Address)
	}
	w.pair = name
	return addrs
}

// wantPartitionsOfRecords checks that the active partitions are those of the journal's records, and that no two share a GPU.
func (w *world) wantPartitionsOfRecords(where string) {
	w.t.Helper()
	if w.fm == nil {
		return
	}
	records, errs := w.records.List()
	if len(errs) > 0 {
		w.t.Fatal(errs)
	}
	want := []int{}
	for _, rec := range records {
		for _, fn := range rec.Plan.Functions {
			for _, s := range fn.Settings {
				if id, _, ok := fabric.ParseValue(s.Want); ok && !slices.Contains(want, id) {
					want = append(want, id)
				}
			}
		}
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, w.fm.Active()); diff != "" {
		w.t.Errorf("%s: partitions (-want by the records +got active):\n%s", where, diff)
	}
}

// TestPartition is activated after its GPUs are bound, renewed for each sandbox, and deactivated before the reset.
func TestPartition(t *testing.T) {
	w := newWorld(t)
	w.board()
	gpus := w.partition("gpu-x2-0000-86-87")
	rec := w.mustPrepare(w.request(uid, gpus...))
	if diff := cmp.Diff([]int{3}, w.fm.Active()); diff != "" {
		t.Errorf("prepared: active (-want +got):\n%s", diff)
	}
	if len(rec.Plan.Functions) != 2 || len(rec.Plan.Allocated()) != 1 || rec.Plan.Functions[0].Settings[0].Applied != "3 (modules 1, 3)" {
		t.Errorf("the record has %+v, want two functions as one device of partition 3", rec.Plan)
	}
	w.mustPrepare(w.request(uid, gpus...)) // may be repeated while a VM runs
	w.mustHandOver("first")
	mark := len(w.events)
	w.mustHandOver("second")
	steps := w.executed(mark)
	off := slices.Index(steps, key{plan.SetValue, gpus[1], fabric.NoPartition})
	reset := slices.IndexFunc(steps, func(k key) bool { return k.op == plan.Reset })
	on := slices.IndexFunc(steps, func(k key) bool { return k.op == plan.SetValue && k.value == "3 (modules 1, 3)" })
	if off < 0 || reset < off || on < reset {
		t.Errorf("between two sandboxes %v, want the partition off, resets, and the partition on", steps)
	}
	w.mustUnprepare(uid)
	if diff := cmp.Diff([]string{"activate 3", "deactivate 3", "activate 3", "deactivate 3"}, w.fm.Changes()); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
}

// TestFirstClaimAfterFabricManagerHasStarted has its GPUs reset before their partition is activated. The next claim does not.
func TestFirstClaimAfterFabricManagerHasStarted(t *testing.T) {
	w := newWorld(t)
	w.corner()
	gpus := w.partition("gpu-x2-0000-86-87")
	if err := w.plugin(nil).MarkForReset(t.Context(), gpus, "Fabric Manager has started"); err != nil {
		t.Fatal(err)
	}
	w.mustPrepare(w.request(uid, gpus...))
	wantResetsFirst(t, w.executed(0), gpus)
	if left := w.unclean(); len(left) > 0 {
		t.Errorf("%v are marked still", left)
	}
	w.mustUnprepare(uid)
	resets := len(w.k.Resets())
	if rec := w.mustPrepare(w.request(other, gpus...)); len(rec.Plan.ResetsBefore) > 0 || len(w.k.Resets()) != resets {
		t.Errorf("the next claim plans %v, and %d resets were made, want %d", rec.Plan.ResetsBefore, len(w.k.Resets()), resets)
	}
	if err := w.plugin(nil).MarkForReset(t.Context(), gpus, "Fabric Manager has started"); err != nil || len(w.unclean()) > 0 {
		t.Errorf("%v, marked %v; want none of a claim's", err, w.unclean())
	}
}

// TestPartitionAsFabricManagerAnswers follows the table of codes: what is done all the same, what is tried once more after a reset, and
// what fails with nothing left of it.
func TestPartitionAsFabricManagerAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		fault  fabrictest.Fault
		says   string // empty: it is prepared
		resets int
		taints bool // the next claim must not get the partition
	}{
		"done, and answered with an error": {fabrictest.Fault{Call: fabric.CallActivate, Code: fabric.Timeout, Late: true}, "", 0, false},
		"done, and the answer was lost":    {fabrictest.Fault{Call: fabric.CallActivate, Err: errors.New("broken pipe"), Late: true}, "", 0, false},
		"the links train after a reset":    {fabrictest.Fault{Call: fabric.CallActivate, Code: fabric.NVLinkError, Times: 1}, "", 2, false},
		"no answer, once":                  {fabrictest.Fault{Call: fabric.CallActivate, Err: errors.New("killed"), Times: 1}, "", 2, false},
		"the links never train":            {fabrictest.Fault{Call: fabric.CallActivate, Code: fabric.NVLinkError}, "FM_ST_NVLINK_ERROR", 2, true},
		"in use":                           {fabrictest.Fault{Call: fabric.CallActivate, Code: fabric.InUse}, "FM_ST_IN_USE", 0, true},
		"mode 0":                           {fabrictest.Fault{Call: fabric.CallActivate, Code: fabric.NotSupported}, "FABRIC_MODE=1", 0, false},
		"another version":                  {fabrictest.Fault{Call: fabric.CallActivate, Code: fabric.VersionMismatch}, "FM_ST_VERSION_MISMATCH", 0, false},
		"success that is none":             {fabrictest.Fault{Call: fabric.CallActivate, Lost: true}, `reads "none" after "3 (modules 1, 3)" was set`, 0, false},
		"the list can't be had":            {fabrictest.Fault{Call: fabric.CallList, Code: fabric.ConnectionNotValid}, "FM_ST_CONNECTION_NOT_VALID", 0, false},
		"it starts, and asks to be told":   {fabrictest.Fault{Call: fabric.CallList, Code: fabric.NotConfigured}, "FM_ST_NOT_CONFIGURED", 0, false},
		"it does not know the partition":   {fabrictest.Fault{Call: fabric.CallActivate, Code: fabric.BadParameter}, "FM_ST_BADPARAM", 0, false},
		"a code that nobody has heard of":  {fabrictest.Fault{Call: fabric.CallActivate, Code: -23}, "-23", 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.board()
			gpus := w.partition("gpu-x2-0000-86-87")
			before := w.bindings()
			w.fm.Add(c.fault)
			_, err := w.plugin(nil).Prepare(t.Context(), w.request(uid, gpus...))
			if n := len(w.k.Resets()); n != c.resets {
				t.Errorf("%d resets, want %d", n, c.resets)
			}
			if c.says == "" {
				if err != nil {
					t.Fatal(err)
				}
				w.wantPartitionsOfRecords("prepared")
				w.fm.Repair()
				w.mustUnprepare(uid)
			} else {
				says(t, err, c.says)
			}
			if failed, ok := errors.AsType[*bind.NotActivatedError](err); ok != c.taints || ok && failed.Device != "gpu-x2-0000-86-87" {
				t.Errorf("%v taints %+v, want the partition's GPUs tainted: %t", err, failed, c.taints)
			}
			if diff := cmp.Diff(before, w.bindings()); diff != "" || w.record(uid) != nil || len(w.fm.Active()) > 0 {
				t.Errorf("record %v (want nil), active %v (want none), bindings (-want as before +got):\n%s", w.record(uid), w.fm.Active(), diff)
			}
		})
	}
}

// TestPartitionThatIsRefused names what is in the way: a foreign active partition, a list that has changed, and GPUs that no partition
// joins.
func TestPartitionThatIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		name    string
		prepare func(*world)
		code    rule.Code
		says    []string
	}{
		"the same is active, by another program": {"gpu-x2-0000-86-87", func(w *world) { _ = w.fm.Activate(t.Context(), 3) }, rule.PartitionNotActivated, []string{"active already, and no claim's, is 3 (modules 1, 3)"}},
		"an overlapping one is active":           {"gpu-x2-0000-86-87", func(w *world) { _ = w.fm.Activate(t.Context(), 1) }, rule.PartitionNotActivated, []string{"partition 3 (modules 1, 3) can't be activated", "1 (modules 1, 2, 3, 4)"}},
		"the list has changed":                   {"gpu-x2-0000-86-87", func(w *world) { w.fm.Set(fabrictest.B200()) }, rule.UnsupportedSetting, []string{"no partition 3 (modules 1, 3) now"}},
		"no such partition":                      {"gpu-x2-0000-86-b8", nil, rule.UnsupportedSetting, []string{"no partition of exactly the GPUs of gpu-x2-0000-86-b8"}},
		"no map":                                 {"gpu-x2-0000-86-87", func(w *world) { w.node.Fabric.Modules = nil }, rule.FabricNotReady, []string{"no map says which PCI function module 1 is"}},
		"no partition at all":                    {"gpu-0000-86-00-0", func(w *world) { w.putState(fabric.State{Partitions: fabric.List{}}) }, rule.FabricNotReady, []string{"Fabric Manager lists no partition"}},
		"a GPU that is left out": {"gpu-0000-86-00-0", func(w *world) {
			w.putState(fabric.State{Partitions: fabric.List{fabrictest.Partition(9, 3)}})
		}, rule.UnsupportedSetting, []string{"no partition of exactly the GPUs of gpu-0000-86-00-0"}},
		"Fabric Manager is away": {"gpu-x2-0000-86-87", func(w *world) {
			w.putState(fabric.State{Partitions: fabrictest.H100(), Away: "no socket"})
		}, rule.FabricNotReady, []string{"can't be asked: no socket"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.board()
			gpus := w.partition(c.name)
			if c.prepare != nil {
				c.prepare(w)
			}
			before, active := w.bindings(), w.fm.Active()
			_, err := w.plugin(nil).Prepare(t.Context(), w.request(uid, gpus...))
			if refused := wantRefused(t, err); refused == nil || !refused.Has(c.code) || c.code == rule.PartitionNotActivated && refused.Verdicts[0].Device != c.name {
				t.Errorf("Prepare = %v, want %s of %s", err, c.code, c.name)
			}
			says(t, err, c.says...)
			if diff := cmp.Diff(before, w.bindings()); diff != "" || w.record(uid) != nil || !slices.Equal(active, w.fm.Active()) {
				t.Errorf("record %v (want nil), active %v, bindings (-want as before +got):\n%s", w.record(uid), w.fm.Active(), diff)
			}
		})
	}
}

// TestPartitionThatStaysActive quarantines all its GPUs, without a reset, until it can be deactivated. That it is inactive already is as
// good.
func TestPartitionThatStaysActive(t *testing.T) {
	for name, c := range map[string]struct {
		fault       fabrictest.Fault
		quarantined bool
	}{
		"an error":             {fabrictest.Fault{Call: fabric.CallDeactivate, Code: fabric.GenericError}, true},
		"no answer":            {fabrictest.Fault{Call: fabric.CallDeactivate, Err: errors.New("killed")}, true},
		"the answer was lost":  {fabrictest.Fault{Call: fabric.CallDeactivate, Err: errors.New("broken pipe"), Late: true}, false},
		"success that is none": {fabrictest.Fault{Call: fabric.CallDeactivate, Lost: true}, true},
		"inactive already":     {fabrictest.Fault{Call: fabric.CallDeactivate, Code: fabric.Uninitialized, Late: true}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.board()
			gpus := w.partition("gpu-x2-0000-86-87")
			w.mustPrepare(w.request(uid, gpus...))
			w.fm.Add(c.fault)
			_, err := w.plugin(nil).Unprepare(t.Context(), uid)
			if _, quarantined := errors.AsType[*prepare.QuarantinedError](err); quarantined != c.quarantined {
				t.Fatalf("Unprepare = %v; want a quarantine: %t", err, c.quarantined)
			}
			if !c.quarantined {
				return
			}
			if resets := w.k.Resets(); len(resets) > 0 {
				t.Errorf("reset below an active partition: %v, want none", resets)
			}
			w.fm.Repair()
			w.pair = ""
			for _, gpu := range gpus {
				if _, err := w.plugin(nil).Prepare(t.Context(), w.request(other, gpu)); err == nil {
					t.Errorf("another claim got %s, want a refusal", gpu)
				}
			}
			w.mustUnprepare(uid)
			if len(w.fm.Active()) > 0 || len(w.k.Resets()) != 2 {
				t.Errorf("active %v, resets %v; want none, and two resets", w.fm.Active(), w.k.Resets())
			}
		})
	}
}

// TestReleaseWaitsForFabricManager, which restarts: within a call, and over several calls. The claim keeps its GPUs meanwhile, none of
// them is reset, and nothing is quarantined before ten minutes have passed.
func TestReleaseWaitsForFabricManager(t *testing.T) {
	for name, c := range map[string]struct {
		call  fabric.Call
		code  fabric.Code
		times int // that many calls are answered so; 0 is all
		wait  time.Duration
		since time.Duration // how long ago the release began
		// keeps says that the record stays in the state of a release, and quarantined that it becomes a quarantine.
		keeps, quarantined bool
	}{
		"away, back within the call":         {fabric.CallList, fabric.ConnectionNotValid, 2, 10 * time.Second, 0, false, false},
		"starting, back within the call":     {fabric.CallDeactivate, fabric.NotConfigured, 1, 10 * time.Second, 0, false, false},
		"away":                               {fabric.CallList, fabric.ConnectionNotValid, 0, 0, 0, true, false},
		"it starts":                          {fabric.CallList, fabric.NotConfigured, 0, 0, 0, true, false},
		"it waits for the active partitions": {fabric.CallList, fabric.Uninitialized, 0, 0, 0, true, false},
		"away from the deactivation on":      {fabric.CallDeactivate, fabric.ConnectionNotValid, 0, 0, 0, true, false},
		"away for nine minutes":              {fabric.CallList, fabric.ConnectionNotValid, 0, 0, 9 * time.Minute, true, false},
		"away for eleven minutes":            {fabric.CallList, fabric.ConnectionNotValid, 0, 0, 11 * time.Minute, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.board()
			gpus := w.partition("gpu-x2-0000-86-87")
			before := w.bindings()
			w.mustPrepare(w.request(uid, gpus...))
			w.wait = c.wait
			w.fm.Add(fabrictest.Fault{Call: c.call, Code: c.code, Times: c.times})
			_, err := w.plugin(nil).Unprepare(t.Context(), uid)
			if c.since > 0 {
				rec := w.record(uid)
				rec.Since = time.Now().Add(-c.since).UTC().Format(time.RFC3339)
				if err := w.records.Save(rec); err != nil {
					t.Fatal(err)
				}
				_, err = w.plugin(nil).Unprepare(t.Context(), uid)
			}
			if _, quarantined := errors.AsType[*prepare.QuarantinedError](err); quarantined != c.quarantined || (err == nil) == (c.keeps || c.quarantined) {
				t.Fatalf("Unprepare = %v; want a quarantine: %t, an error: %t", err, c.quarantined, c.keeps || c.quarantined)
			}
			if !c.keeps && !c.quarantined {
				return
			}
			if rec := w.record(uid); c.keeps && (rec == nil || rec.State != journal.Releasing || rule.Classify(err) != rule.FabricNotReady) {
				t.Errorf("record %+v, %s; want it to be released, and %s", rec, rule.Classify(err), rule.FabricNotReady)
			}
			if resets := w.k.Resets(); len(resets) > 0 {
				t.Errorf("reset below an active partition: %v, want none", resets)
			}
			if r, err := w.plugin(nil).Recover(t.Context()); err != nil || len(r.Unfinished)+len(r.Quarantined) != 1 {
				t.Errorf("Recover = %+v, %v; want it unfinished, or still a quarantine", r, err)
			}
			w.fm.Repair()
			w.mustUnprepare(uid)
			if diff := cmp.Diff(before, w.bindings()); diff != "" || len(w.fm.Active()) > 0 || len(w.k.Resets()) != 2 {
				t.Errorf("active %v (want none), resets %v (want 2), bindings (-want as before +got):\n%s", w.fm.Active(), w.k.Resets(), diff)
			}
		})
	}
}

// TestQuarantineStaysOneWhileFabricManagerIsAway: nobody calls again for a quarantine.
func TestQuarantineStaysOneWhileFabricManagerIsAway(t *testing.T) {
	w := newWorld(t)
	w.board()
	w.mustPrepare(w.request(uid, w.partition("gpu-x2-0000-86-87")...))
	w.fm.Add(fabrictest.Fault{Call: fabric.CallDeactivate, Code: fabric.GenericError})
	for range 2 {
		_, err := w.plugin(nil).Unprepare(t.Context(), uid)
		if _, quarantined := errors.AsType[*prepare.QuarantinedError](err); !quarantined || w.record(uid).State != journal.Quarantined {
			t.Errorf("Unprepare = %v, record %s; want a quarantine", err, w.record(uid).State)
		}
		w.fm.Repair()
		w.fm.Add(fabrictest.Fault{Call: fabric.CallList, Code: fabric.ConnectionNotValid})
	}
	w.fm.Repair()
	w.mustUnprepare(uid)
}

// TestNextSandboxWaitsForFabricManager: between two sandboxes nothing is quarantined, either.
func TestNextSandboxWaitsForFabricManager(t *testing.T) {
	w := newWorld(t)
	w.board()
	w.mustPrepare(w.request(uid, w.partition("gpu-x2-0000-86-87")...))
	w.mustHandOver("first")
	w.fm.Add(fabrictest.Fault{Call: fabric.CallList, Code: fabric.NotConfigured})
	err := w.plugin(nil).HandOver(t.Context(), uid, journal.Sandbox{ID: "second"})
	if rec := w.record(uid); rule.Classify(err) != rule.FabricNotReady || rec.State != journal.Prepared || rec.Sandbox.ID != "first" {
		t.Errorf("HandOver = %v, record %+v; want the first sandbox's", err, rec)
	}
	w.fm.Repair()
	w.mustHandOver("second")
}

// TestPreparedClaimWhileFabricManagerIsAway: the kubelet asks again, and a new instance of the plugin recovers. A claim that a sandbox has
// stays prepared if its partition was active when Fabric Manager listed it last. Nothing else is taken for active.
func TestPreparedClaimWhileFabricManagerIsAway(t *testing.T) {
	for name, c := range map[string]struct {
		listed  []int // the partitions that are active in the last list; nil for no list
		sandbox string
		code    fabric.Code
		stands  bool
	}{
		"a VM has it":                       {[]int{3}, "first", fabric.ConnectionNotValid, true},
		"a VM has it, and it waits":         {[]int{3}, "first", fabric.NotConfigured, true},
		"it answers with another error":     {[]int{3}, "first", fabric.GenericError, false},
		"no VM has it yet":                  {[]int{3}, "", fabric.ConnectionNotValid, false},
		"its partition is lost":             {[]int{}, "first", fabric.ConnectionNotValid, false},
		"another partition is in its place": {[]int{7}, "first", fabric.ConnectionNotValid, false},
		"the last list is missing":          {nil, "first", fabric.ConnectionNotValid, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.corner()
			req := w.request(uid, w.partition("gpu-x2-0000-86-87")...)
			first := w.mustPrepare(req)
			if c.sandbox != "" {
				w.mustHandOver(c.sandbox)
				first = w.record(uid)
			}
			if c.listed == nil {
				w.removeState()
			} else {
				w.putState(fabric.State{Partitions: w.fm.Listed(c.listed...)})
			}
			w.fm.Add(fabrictest.Fault{Call: fabric.CallList, Code: c.code})
			again, err := w.plugin(nil).Prepare(t.Context(), req)
			recovery, recoverErr := w.plugin(nil).Recover(t.Context())
			if recoverErr != nil || len(recovery.Kept) != 1 || (len(recovery.Unfinished) == 0) != c.stands {
				t.Errorf("Recover = %+v, %v; want it kept, and repaired: %t", recovery, recoverErr, c.stands)
			}
			if c.stands {
				if diff := cmp.Diff(first, again); diff != "" || err != nil || !w.hasSpec(uid) {
					t.Errorf("Prepare = %v, spec: %t, record (-want as at first +got):\n%s", err, w.hasSpec(uid), diff)
				}
				return
			}
			if away := c.code == fabric.ConnectionNotValid; err == nil || away != (rule.Classify(err) == rule.FabricNotReady) {
				t.Errorf("Prepare = %v; want an error, %s: %t", err, rule.FabricNotReady, away)
			}
			w.fm.Repair()
			w.fm.Restart(false) // without the list of active partitions, it has none
			w.mustPrepare(req)
			w.wantPartitionsOfRecords("when it is back")
		})
	}
}

// TestClaimsPartitionsShareNoGPU over random claims and ends, each with a restart of the plugin: the active partitions are those of the
// journal, and Fabric Manager, which refuses two that share a GPU, never had to.
func TestClaimsPartitionsShareNoGPU(t *testing.T) {
	w := newWorld(t)
	w.board()
	names := []string{
		"gpu-x2-0000-86-87", "gpu-x2-0000-b8-bb", "gpu-x2-0000-0f-10", "gpu-x2-0000-41-44",
		"gpu-x4-0000-0f-10-41-44", "gpu-x4-0000-86-87-b8-bb", "gpu-x8-0000-0f-10-41-44-86-87-b8-bb",
	}
	for _, bus := range fabrictest.Buses() {
		names = append(names, "gpu-"+pci.Address{Bus: bus}.Label())
	}
	random := rand.New(rand.NewPCG(1, 2))
	prepared, refused := 0, 0
	for n := range 60 {
		name := names[random.IntN(len(names))]
		gpus := w.partition(name)
		if len(gpus) == 1 {
			w.pair = ""
		}
		id := fmt.Sprintf("claim-%d", n)
		if _, err := w.plugin(nil).Prepare(t.Context(), w.request(id, gpus...)); err == nil {
			prepared++
		} else {
			refused++
			if got := wantRefused(t, err); got == nil || !got.Has(rule.Held) {
				t.Errorf("%s: %v, want a refusal because another claim has it", name, err)
			}
		}
		if random.IntN(2) == 0 {
			if r, err := w.plugin(nil).Recover(t.Context()); err != nil || len(r.Unfinished) > 0 {
				t.Fatalf("Recover = %+v, %v; want nothing unfinished", r, err)
			}
		}
		w.wantPartitionsOfRecords(id)
		records, _ := w.records.List()
		for _, rec := range records {
			if random.IntN(3) == 0 {
				w.mustUnprepare(rec.ID())
			}
		}
	}
	if prepared < 20 || refused < 5 {
		t.Errorf("%d claims were prepared and %d refused, want at least 20 and 5", prepared, refused)
	}
}

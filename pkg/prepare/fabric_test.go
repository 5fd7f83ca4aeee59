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

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/fabric"
	"github.com/kata-vfio/kata-vfio/pkg/fabric/fabrictest"
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
		w.t.Errorf("%s: partitions (-of records +active):\n%s", where, diff)
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
		t.Errorf("the record has %+v", rec.Plan)
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

// TestPartitionAsFabricManagerAnswers follows the table of codes: what is done all the same, what is tried once more after a reset, and
// what fails with nothing left of it.
func TestPartitionAsFabricManagerAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		fault  fabrictest.Fault
		says   string // empty: it is prepared
		resets int
	}{
		"done, and answered with an error": {fabrictest.Fault{Call: fabric.CallActivate, Code: fabric.Timeout, Late: true}, "", 0},
		"done, and the answer was lost":    {fabrictest.Fault{Call: fabric.CallActivate, Err: errors.New("broken pipe"), Late: true}, "", 0},
		"the links train after a reset":    {fabrictest.Fault{Call: fabric.CallActivate, Code: fabric.NVLinkError, Times: 1}, "", 2},
		"no answer, once":                  {fabrictest.Fault{Call: fabric.CallActivate, Err: errors.New("killed"), Times: 1}, "", 2},
		"the links never train":            {fabrictest.Fault{Call: fabric.CallActivate, Code: fabric.NVLinkError}, "FM_ST_NVLINK_ERROR", 2},
		"in use":                           {fabrictest.Fault{Call: fabric.CallActivate, Code: fabric.InUse}, "FM_ST_IN_USE", 0},
		"mode 0":                           {fabrictest.Fault{Call: fabric.CallActivate, Code: fabric.NotSupported}, "FABRIC_MODE=1", 0},
		"another version":                  {fabrictest.Fault{Call: fabric.CallActivate, Code: fabric.VersionMismatch}, "FM_ST_VERSION_MISMATCH", 0},
		"success that is none":             {fabrictest.Fault{Call: fabric.CallActivate, Lost: true}, `reads "none" after "3 (modules 1, 3)" was set`, 0},
		"the list can't be had":            {fabrictest.Fault{Call: fabric.CallList, Code: fabric.ConnectionNotValid}, "FM_ST_CONNECTION_NOT_VALID", 0},
		"it starts, and asks to be told":   {fabrictest.Fault{Call: fabric.CallList, Code: fabric.NotConfigured}, "FM_ST_NOT_CONFIGURED", 0},
		"it does not know the partition":   {fabrictest.Fault{Call: fabric.CallActivate, Code: fabric.BadParameter}, "FM_ST_BADPARAM", 0},
		"a code that nobody has heard of":  {fabrictest.Fault{Call: fabric.CallActivate, Code: -23}, "-23", 0},
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
			if diff := cmp.Diff(before, w.bindings()); diff != "" || w.record(uid) != nil || len(w.fm.Active()) > 0 {
				t.Errorf("record %v, active %v, bindings (-before +after):\n%s", w.record(uid), w.fm.Active(), diff)
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
		"the same is active, by another program": {"gpu-x2-0000-86-87", func(w *world) { _ = w.fm.Activate(t.Context(), 3) }, rule.UnsupportedSetting, []string{"active already, and no claim's, is 3 (modules 1, 3)"}},
		"an overlapping one is active":           {"gpu-x2-0000-86-87", func(w *world) { _ = w.fm.Activate(t.Context(), 1) }, rule.UnsupportedSetting, []string{"partition 3 (modules 1, 3) can't be activated", "1 (modules 1, 2, 3, 4)"}},
		"the list has changed":                   {"gpu-x2-0000-86-87", func(w *world) { w.fm.Set(fabrictest.B200()) }, rule.UnsupportedSetting, []string{"no partition 3 (modules 1, 3) now"}},
		"no such partition":                      {"gpu-x2-0000-86-b8", nil, rule.UnsupportedSetting, []string{"no partition of exactly the GPUs of gpu-x2-0000-86-b8"}},
		"no map":                                 {"gpu-x2-0000-86-87", func(w *world) { w.node.Fabric.Modules = nil }, rule.FabricNotReady, []string{"no map says which PCI function module 1 is"}},
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
			if refused := wantRefused(t, err); refused == nil || !refused.Has(c.code) {
				t.Errorf("Prepare = %v, want %s", err, c.code)
			}
			says(t, err, c.says...)
			if diff := cmp.Diff(before, w.bindings()); diff != "" || w.record(uid) != nil || !slices.Equal(active, w.fm.Active()) {
				t.Errorf("record %v, active %v, bindings (-before +after):\n%s", w.record(uid), w.fm.Active(), diff)
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
		"away":                 {fabrictest.Fault{Call: fabric.CallList, Code: fabric.ConnectionNotValid}, true},
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
				t.Errorf("reset below an active partition: %v", resets)
			}
			w.fm.Repair()
			w.pair = ""
			for _, gpu := range gpus {
				if _, err := w.plugin(nil).Prepare(t.Context(), w.request(other, gpu)); err == nil {
					t.Errorf("another claim got %s", gpu)
				}
			}
			w.mustUnprepare(uid)
			if len(w.fm.Active()) > 0 || len(w.k.Resets()) != 2 {
				t.Errorf("active %v, resets %v", w.fm.Active(), w.k.Resets())
			}
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
				t.Fatalf("Recover = %+v, %v", r, err)
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
		t.Errorf("%d claims were prepared and %d refused, which shows little", prepared, refused)
	}
}

package prepare_test

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/maintain"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
	"github.com/kata-vfio/kata-vfio/pkg/prepare/effects"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

// lost has a claim's record removed behind the plugin's back.
func (w *world) lost(uid string) {
	w.t.Helper()
	if err := os.Remove(w.recordFile(uid)); err != nil {
		w.t.Fatal(err)
	}
}

// strayCase is a stray, whether it goes back, and why not.
type strayCase struct {
	build func(*world) pci.Address
	back  bool
	why   string
}

// marked is how many functions are known not to be clean afterwards: also a VF that stays.
func (c *strayCase) marked() int {
	if c.back || strings.Contains(c.why, "VF") || strings.Contains(c.why, "reset") {
		return 1
	}
	return 0
}

// TestStraysThatWeBoundGoBack, marked as not proven clean; all that is not certain stays.
func TestStraysThatWeBoundGoBack(t *testing.T) {
	tests := map[string]strayCase{
		"its record was removed": {func(w *world) pci.Address {
			gpu := w.k.AddGPU(0x3b)
			w.mustPrepare(w.request(uid, gpu))
			w.lost(uid)
			return gpu
		}, true, ""},
		"bound by hand": {func(w *world) pci.Address {
			return addGPU(w, func(f *sysfstest.Function) { f.Driver = "vfio-pci" })
		}, false, "bound by hand"},
		"nothing resets it": {func(w *world) pci.Address {
			gpu := addGPU(w, func(f *sysfstest.Function) { f.ResetMethods = nil })
			w.mustPrepare(skipping(w.request(uid, gpu)))
			w.lost(uid)
			return gpu
		}, false, "the device can't be reset"},
		"a VF": {func(w *world) pci.Address {
			_, vfs := w.k.AddNIC(0x21, 1)
			w.mustPrepare(w.request(uid, vfs[0]))
			w.lost(uid)
			return vfs[0]
		}, false, "the VF's former settings on PF 0000:21:00.0"},
		"another function of its claim is in use": {func(w *world) pci.Address {
			gpus := []pci.Address{w.k.AddGPU(0x3b), w.k.AddGPU(0x3c)}
			w.mustPrepare(w.request(uid, gpus...))
			w.hold(gpus[1])
			w.lost(uid)
			return gpus[0]
		}, false, "0000:3c:00.0 is in use"},
		"quarantined, and its record was removed": {func(w *world) pci.Address {
			gpu, _ := w.quarantined()
			w.lost(uid)
			return gpu
		}, false, "quarantined"},
		"another record is damaged": {func(w *world) pci.Address {
			gpu := w.k.AddGPU(0x3b)
			w.mustPrepare(w.request(uid, gpu))
			w.spoil(uid, `"nvidia"`, `"nvidiA"`)
			return gpu
		}, false, "can't be read"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			a := tt.build(w)
			before := len(w.unclean())
			for range 2 { // the second time there is nothing left to give back
				strays, err := w.plugin(nil).GiveBackOrphans(t.Context())
				if err != nil || tt.why != "" && (len(strays) == 0 || !strings.Contains(strays[0].Why, tt.why)) {
					t.Fatalf("GiveBackOrphans = %+v, %v; want %q", strays, err, tt.why)
				}
			}
			if got := w.driver(a); got == "vfio-pci" == tt.back {
				t.Errorf("driver %s, want it given back: %t", got, tt.back)
			}
			if got, want := len(w.unclean())-before, tt.marked(); got != want {
				t.Errorf("%d marks more, want %d", got, want)
			}
		})
	}
}

// TestStrayIsResetBeforeItGoesBack: a reset that fails keeps it from its host driver.
func TestStrayIsResetBeforeItGoesBack(t *testing.T) {
	w := newWorld(t)
	gpu := w.k.AddGPU(0x3b)
	home := w.driver(gpu)
	w.mustPrepare(w.request(uid, gpu))
	w.lost(uid)
	w.k.OnReset(gpu, w.resets(false))
	strays, err := w.plugin(nil).GiveBackOrphans(t.Context())
	if err != nil || len(strays) != 1 || strays[0].Err == nil || w.driver(gpu) != "vfio-pci" {
		t.Fatalf("GiveBackOrphans = %+v, %v; driver %s, want it kept", strays, err, w.driver(gpu))
	}
	bound := ""
	w.k.OnReset(gpu, func(string) (sysfstest.ResetEffect, error) {
		bound = w.driver(gpu)
		return sysfstest.ResetWorks, nil
	})
	strays, err = w.plugin(nil).GiveBackOrphans(t.Context())
	if err != nil || len(strays) != 1 || strays[0].GivenBack != home || w.driver(gpu) != home || bound != "vfio-pci" {
		t.Errorf("GiveBackOrphans = %+v, %v; driver %s, reset while on %q; want one, given back to %s, reset while on vfio-pci", strays, err, w.driver(gpu), bound, home)
	}
}

// TestCrashInGivingAStrayBack: the next start ends it.
func TestCrashInGivingAStrayBack(t *testing.T) {
	for at := 1; ; at++ {
		var p *power
		for _, after := range []bool{false, true} {
			w := newWorld(t)
			gpu := w.k.AddGPU(0x3b)
			home := w.driver(gpu)
			w.mustPrepare(w.request(uid, gpu))
			w.lost(uid)
			p = &power{at: at, after: after}
			_, _ = w.plugin(p).GiveBackOrphans(t.Context()) // nobody sees its error
			w.mustRecover()
			if _, err := w.plugin(nil).GiveBackOrphans(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := w.driver(gpu); got != home || len(w.unclean()) != 1 {
				t.Errorf("cut at effect %d (after: %t): driver %s, marks %v; want %s and one mark", at, after, got, w.unclean(), home)
			}
		}
		if !p.off {
			return
		}
	}
}

// TestLostClaimEndsInTheLedger once, with its VM, also where a VF stays as it is.
func TestLostClaimEndsInTheLedger(t *testing.T) {
	w := newWorld(t)
	gpu := w.k.AddGPU(0x3b)
	_, vfs := w.k.AddNIC(0x21, 1)
	w.mustPrepare(w.request(uid, gpu, vfs[0]))
	w.mustHandOver("first")
	w.lost(uid)
	for range 2 {
		strays, err := w.plugin(nil).GiveBackOrphans(t.Context())
		if err != nil || len(strays) == 0 {
			t.Fatalf("GiveBackOrphans = %+v, %v; want some", strays, err)
		}
	}
	var closed, ended []ledger.Event
	for _, e := range w.told(uid) {
		if e.Type == ledger.Close {
			closed = append(closed, e)
		}
		if e.Type == ledger.Unprepare {
			ended = append(ended, e)
		}
	}
	if len(closed) != 1 || closed[0].VM == nil || closed[0].VM.Sandbox != "first" || !closed[0].Late {
		t.Errorf("closed by %+v, want one late event of sandbox first", closed)
	}
	if len(ended) != 1 || !ended[0].Concerns(gpu) || !ended[0].Concerns(vfs[0]) || !slices.Equal(ended[0].Codes, []string{ledger.CodeUnproven}) {
		t.Errorf("ended by %+v, want one event of both functions with %s", ended, ledger.CodeUnproven)
	}
	if w.driver(gpu) == "vfio-pci" || w.driver(vfs[0]) != "vfio-pci" || len(w.unclean()) != 2 {
		t.Errorf("drivers %s and %s, marks %v; want the host's, vfio-pci, and two marks", w.driver(gpu), w.driver(vfs[0]), w.unclean())
	}
}

// TestFailedGiveBackIsTriedAgain by the next look, and keeps no other from going back.
func TestFailedGiveBackIsTriedAgain(t *testing.T) {
	w := newWorld(t)
	stuck, free := w.k.AddGPU(0x3b), w.k.AddGPU(0x3c)
	home := w.driver(stuck)
	for id, a := range map[string]pci.Address{uid: stuck, other: free} {
		w.mustPrepare(w.request(id, a))
		w.lost(id)
	}
	refuse := true
	w.k.OnWrite(func(path, value string) error {
		if refuse && unbinds(path) && value == stuck.String() {
			return unix.EIO
		}
		return nil
	})
	for range 2 { // it is told at each look, not once
		strays, err := w.plugin(nil).GiveBackOrphans(t.Context())
		i := slices.IndexFunc(strays, func(s maintain.Orphan) bool { return s.Address == stuck })
		if err != nil || i < 0 || strays[i].Err == nil || strays[i].GivenBack != "" {
			t.Fatalf("GiveBackOrphans = %+v, %v; want the one's error", strays, err)
		}
		if got := w.driver(free); got != home {
			t.Errorf("the other is on %s, want %s", got, home)
		}
	}
	if rec := w.record("stray-" + stuck.Label()); rec == nil || rec.Kind != journal.Orphan || !strings.Contains(rec.Reason, "input/output error") {
		t.Errorf("record %+v, want it to say why", rec)
	}
	refuse = false
	strays, err := w.plugin(nil).GiveBackOrphans(t.Context())
	if err != nil || len(strays) != 1 || strays[0].GivenBack != home || w.driver(stuck) != home {
		t.Errorf("GiveBackOrphans = %+v, %v; driver %s; want one, given back to %s", strays, err, w.driver(stuck), home)
	}
	w.mustPrepare(w.request(uid, stuck))
}

// brokenSpecs can't remove anything.
type brokenSpecs struct{ effects.Specs }

func (brokenSpecs) Remove(string) error { return unix.EROFS }

// TestSpecThatStaysIsNotSaidToBeRemoved.
func TestSpecThatStaysIsNotSaidToBeRemoved(t *testing.T) {
	w := newWorld(t)
	w.mustPrepare(w.request(uid, w.k.AddGPU(0x3b)))
	w.lost(uid)
	plugin := w.plugin(nil, func(c *prepare.Config) { c.Parts.Specs = brokenSpecs{c.Parts.Specs} })
	if removed, err := plugin.SweepSpecs(t.Context()); len(removed) > 0 || !errors.Is(err, unix.EROFS) {
		t.Errorf("SweepSpecs = %v, %v; want none, %v", removed, err, unix.EROFS)
	}
}

// TestOrphansReadTheLedgerOnce: GPUs that are on vfio-pci from the node's start on are orphans at each look, and the ledger may
// be large.
func TestOrphansReadTheLedgerOnce(t *testing.T) {
	w := newWorld(t)
	var gpus []pci.Address
	for i := range 8 {
		bus := uint8(0x30 + i)
		w.k.AddRootPort(bus)
		f := sysfstest.GPU(pci.Address{Bus: bus})
		f.Driver = "vfio-pci"
		w.k.Add(f)
		gpus = append(gpus, f.Address)
	}
	w.mustPrepare(w.request(uid, w.k.AddGPU(0x60))) // a ledger
	counted := &countedLedger{Ledger: w.writer()}
	p := w.plugin(nil, func(c *prepare.Config) { c.Parts.Ledger = counted })
	for look := range 3 {
		orphans, err := p.GiveBackOrphans(t.Context())
		if err != nil || len(orphans) != len(gpus) || !strings.Contains(orphans[0].Why, "bound by hand") {
			t.Fatalf("GiveBackOrphans = %+v, %v; want %d, bound by hand", orphans, err, len(gpus))
		}
		if counted.remembered != look+1 || counted.one+counted.several > 0 {
			t.Errorf("look %d: %d passes for all functions, %d and %d for claims; want one for all", look, counted.remembered, counted.one, counted.several)
		}
	}
}

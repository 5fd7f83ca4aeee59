package prepare_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

func (w *world) markUnclean(a pci.Address) {
	w.t.Helper()
	if err := w.records.MarkNeedsReset(w.t.Context(), journal.ResetMark{Address: a, Claim: "earlier", Why: "of a test"}); err != nil {
		w.t.Fatal(err)
	}
}

// needsReset returns the functions that are marked, in order.
func (w *world) unclean() []pci.Address {
	w.t.Helper()
	marks, err := w.records.NeedsReset()
	if err != nil {
		w.t.Fatal(err)
	}
	var addrs []pci.Address
	for i := range marks {
		addrs = append(addrs, marks[i].Address)
	}
	slices.SortFunc(addrs, pci.Address.Compare)
	return addrs
}

// skipping is the request under a class that waives the reset.
func skipping(req *claim.Request) *claim.Request {
	for i := range req.Devices {
		req.Devices[i].VFIO.Reset = v1alpha1.ResetSkip
	}
	return req
}

// waysToEndUncleaned are the ways in which a tenant's functions come free
// without the reset that a proof needs. Each returns the functions that are not
// proven clean then.
func waysToEndUncleaned() map[string]func(*world) []pci.Address {
	return map[string]func(*world) []pci.Address{
		"the node went down in the tenancy": func(w *world) []pci.Address {
			gpu := w.k.AddGPU(0x3b)
			w.mustPrepare(w.request("before", gpu))
			w.k.Reboot()
			w.mustRecover()
			return []pci.Address{gpu}
		},
		"the node went down amid the release": func(w *world) []pci.Address {
			gpu := w.k.AddGPU(0x3b)
			w.mustPrepare(w.request("before", gpu))
			if _, err := w.plugin(&power{at: 2}).Unprepare(w.t.Context(), "before"); err == nil {
				w.t.Fatal("the release was not cut off")
			}
			w.k.Reboot()
			w.mustRecover()
			return []pci.Address{gpu}
		},
		"its class waives the reset": func(w *world) []pci.Address {
			gpu := w.k.AddGPU(0x3b)
			w.mustPrepare(skipping(w.request("before", gpu)))
			w.mustUnprepare("before")
			return []pci.Address{gpu}
		},
		"with a group mate, its class waives the reset": func(w *world) []pci.Address {
			gpu, audio := w.k.AddGPUWithAudio(0x62, 15)
			w.mustPrepare(skipping(w.request("before", gpu)))
			w.mustUnprepare("before")
			return []pci.Address{gpu, audio}
		},
		"it was off the bus": func(w *world) []pci.Address {
			gpu := w.k.AddGPU(0x3b)
			w.mustPrepare(w.request("before", gpu))
			w.k.Remove(gpu)
			w.mustUnprepare("before")
			w.k.Add(sysfstest.GPU(gpu))
			return []pci.Address{gpu}
		},
	}
}

func (w *world) mustRecover() {
	w.t.Helper()
	if r, err := w.plugin(nil).Recover(w.t.Context()); err != nil || len(r.Unfinished) > 0 {
		w.t.Fatalf("Recover = %+v, %v; want nothing unfinished", r, err)
	}
}

func (w *world) mustUnprepare(uid string) {
	w.t.Helper()
	if _, err := w.plugin(nil).Unprepare(w.t.Context(), uid); err != nil {
		w.t.Fatal(err)
	}
}

// TestNextTenantGetsItProvenClean: whatever the last tenancy ended with, the
// next claim has a proof, and only the first one after it needs a reset for that.
func TestNextTenantGetsItProvenClean(t *testing.T) {
	for name, end := range waysToEndUncleaned() {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			fns := end(w)
			if diff := cmp.Diff(fns, w.unclean()); diff != "" {
				t.Errorf("marked (-want +got):\n%s", diff)
			}
			before := len(w.k.Resets())
			rec := w.mustPrepare(w.request(uid, fns[0]))
			if got := len(w.k.Resets()) - before; got == 0 || len(rec.Proofs) != 1 {
				t.Errorf("%d resets with %d proofs before the tenant, want one", got, len(rec.Proofs))
			}
			if left := w.unclean(); len(left) > 0 {
				t.Errorf("still marked: %v, want none", left)
			}
			w.mustUnprepare(uid)
			if rec := w.mustPrepare(w.request(other, fns[0])); len(rec.Proofs) > 0 || len(rec.Plan.ResetsBefore) > 0 {
				t.Errorf("reset again before the tenant after that: %+v, want no reset", rec.Proofs)
			}
		})
	}
}

// TestFunctionsOutOfReachAreNotMarked: a companion that is bound beside the
// device, and not given, was in nobody's hands.
func TestFunctionsOutOfReachAreNotMarked(t *testing.T) {
	w := newWorld(t)
	gpu, _ := w.k.AddGPUWithCompanions(0x70)
	w.mustPrepare(skipping(w.request("before", gpu)))
	w.mustUnprepare("before")
	if diff := cmp.Diff([]pci.Address{gpu}, w.unclean()); diff != "" {
		t.Errorf("marked (-want +got):\n%s", diff)
	}
}

// TestThoseWhoTrustEachOtherNeedNoReset: a class that waives resets waives that
// before its tenants too, and what they leave stays marked.
func TestThoseWhoTrustEachOtherNeedNoReset(t *testing.T) {
	w := newWorld(t)
	gpu := w.k.AddGPU(0x3b)
	w.markUnclean(gpu)
	w.mustPrepare(skipping(w.request(uid, gpu)))
	w.mustUnprepare(uid)
	if n := len(w.k.Resets()); n != 0 {
		t.Errorf("%d resets, want none", n)
	}
	if diff := cmp.Diff([]pci.Address{gpu}, w.unclean()); diff != "" {
		t.Errorf("marked (-want +got):\n%s", diff)
	}
}

// TestPlanShowsTheResetBefore: a dry run says so.
func TestPlanShowsTheResetBefore(t *testing.T) {
	w := newWorld(t)
	gpu := w.k.AddGPU(0x3b)
	w.markUnclean(gpu)
	pl, err := w.plugin(nil).Plan(t.Context(), w.request(uid, gpu))
	if err != nil {
		t.Fatal(err)
	}
	last := pl.Steps[len(pl.Steps)-1]
	if last.Operation != plan.Reset || !slices.Contains(last.Set, gpu) {
		t.Errorf("the last step is %q, want the reset", last)
	}
	if len(w.k.Resets()) > 0 || len(w.unclean()) != 1 {
		t.Error("a plan changed the node")
	}
}

// TestUncleanBeforeATenantIsQuarantined: a function that can't be proven clean
// goes to nobody, until its reset works again.
func TestUncleanBeforeATenantIsQuarantined(t *testing.T) {
	for name, reset := range map[string]func(string) (sysfstest.ResetEffect, error){
		"the reset fails":              func(string) (sysfstest.ResetEffect, error) { return 0, unix.EIO },
		"the reset kills the device":   func(string) (sysfstest.ResetEffect, error) { return sysfstest.ResetKills, nil },
		"the kernel knows no such one": func(string) (sysfstest.ResetEffect, error) { return 0, unix.ENOTTY },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			gpu := w.k.AddGPU(0x3b)
			w.markUnclean(gpu)
			w.k.OnReset(gpu, reset)
			_, err := w.plugin(nil).Prepare(t.Context(), w.request(uid, gpu))
			wantQuarantined(t, err)
			if rec := w.record(uid); rec == nil || rec.State != journal.Quarantined || w.hasSpec(uid) {
				t.Fatalf("record %+v, want a quarantine without a spec", rec)
			}
			if len(w.unclean()) != 1 {
				t.Error("the mark is gone")
			}
			_, err = w.plugin(nil).Prepare(t.Context(), w.request(other, gpu))
			if refused := wantRefused(t, err); refused == nil || !refused.Has(rule.Quarantined) && !refused.Has(rule.ConfigSpaceDead) {
				t.Errorf("another claim: %v, want %s or %s", err, rule.Quarantined, rule.ConfigSpaceDead)
			}
			w.k.OnReset(gpu, func(string) (sysfstest.ResetEffect, error) { return sysfstest.ResetWorks, nil })
			w.repair(gpu)
			w.mustUnprepare(uid)
			if left := w.unclean(); len(left) > 0 {
				t.Errorf("still marked after the repair: %v, want none", left)
			}
			w.mustPrepare(w.request(other, gpu))
		})
	}
}

// TestMarksThatCannotBeReadCount: a mark whose file is damaged marks its
// function, and without the list of marks nothing is prepared.
func TestMarksThatCannotBeReadCount(t *testing.T) {
	w := newWorld(t)
	gpu := w.k.AddGPU(0x3b)
	w.markUnclean(gpu)
	marks := filepath.Join(w.k.Root(), "var/lib/kata-vfio/journal/unclean")
	file := filepath.Join(marks, gpu.String()+".json")
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if rec := w.mustPrepare(w.request(uid, gpu)); len(rec.Proofs) != 1 {
		t.Errorf("proofs %+v, want one", rec.Proofs)
	}
	w.mustUnprepare(uid)
	if err := errors.Join(os.RemoveAll(marks), os.WriteFile(marks, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	_, err := w.plugin(nil).Prepare(t.Context(), w.request(other, gpu))
	says(t, err, marks, "not clean")
	if rec := w.record(other); rec != nil {
		t.Errorf("record %+v, want none", rec)
	}
}

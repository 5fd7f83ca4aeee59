package prepare_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
	"github.com/kata-vfio/kata-vfio/pkg/prepare/effects"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// TestClaimThatIsAllocatedAgain: with another device it is prepared with that one, and the
// former goes back clean.
func TestClaimThatIsAllocatedAgain(t *testing.T) {
	w := newWorld(t)
	former, next := w.k.AddGPU(0x3b), w.k.AddGPU(0x3c)
	home := w.driver(former)
	w.mustPrepare(w.request(uid, former))
	w.mustHandOver("first")
	rec := w.mustPrepare(w.request(uid, next))
	if got := rec.Plan.Addresses(); !slices.Equal(got, []pci.Address{next}) || !slices.Equal(w.record(uid).Plan.Addresses(), got) || rec.Sandbox != nil {
		t.Errorf("prepared with %v, sandbox %+v; want %s for no sandbox", got, rec.Sandbox, next)
	}
	if w.driver(former) != home || w.driver(next) != "vfio-pci" || len(w.k.Resets()) != 1 || len(w.unclean()) > 0 {
		t.Errorf("drivers %s and %s, %d resets, unclean %v; want %s, vfio-pci, 1, none", w.driver(former), w.driver(next), len(w.k.Resets()), w.unclean(), home)
	}
}

// TestAllocatedAgainWhileAVMHasTheFormerDevice: nothing changes until the VM has ended.
func TestAllocatedAgainWhileAVMHasTheFormerDevice(t *testing.T) {
	w := newWorld(t)
	former, next := w.k.AddGPU(0x3b), w.k.AddGPU(0x3c)
	w.mustPrepare(w.request(uid, former))
	h := w.k.Hold(w.groupNode(former), nobody, "qemu-system-x86", container)
	before := w.state()
	for range 2 {
		_, err := w.plugin(nil).Prepare(t.Context(), w.request(uid, next))
		as[*prepare.ReallocatedError](t, err)
		as[*effects.InUseError](t, err)
		says(t, err, "gpu-0000-3c-00-0", "gpu-0000-3b-00-0 of its former allocation", "qemu-system-x86")
		w.unchanged(before)
	}
	if len(w.k.Resets()) > 0 {
		t.Error("a device in use was reset")
	}
	h.Release()
	if got := w.mustPrepare(w.request(uid, next)).Plan.Addresses(); !slices.Equal(got, []pci.Address{next}) {
		t.Errorf("prepared with %v, want %s", got, next)
	}
}

// TestAllocatedAgainFromAnotherPool: the same device from another pool is another allocation.
func TestAllocatedAgainFromAnotherPool(t *testing.T) {
	w := newWorld(t)
	gpu := w.k.AddGPU(0x3b)
	w.mustPrepare(w.request(uid, gpu))
	req := w.request(uid, gpu)
	req.Devices[0].Pool = "node/pf-0000-3a-00-0"
	if rec := w.mustPrepare(req); rec.Plan.Devices[0].Pool != req.Devices[0].Pool || len(w.k.Resets()) != 1 {
		t.Errorf("prepared from pool %s after %d resets, want it released first", rec.Plan.Devices[0].Pool, len(w.k.Resets()))
	}
}

// TestClaimThatMovedAway is not prepared again here, and its VM keeps what it has.
func TestClaimThatMovedAway(t *testing.T) {
	w := newWorld(t)
	gpu := w.k.AddGPU(0x3b)
	w.name = "node"
	req := w.request(uid, gpu)
	w.mustPrepare(req)
	before := w.state()
	req.Devices[0].Pool = "node-2"
	_, err := w.plugin(nil).Prepare(t.Context(), req)
	if !wantRefused(t, err).Has(rule.AllocatedElsewhere) {
		t.Errorf("Prepare = %v, want %s", err, rule.AllocatedElsewhere)
	}
	w.unchanged(before)
}

// TestRecordOfAnotherNodesPool, as it was written before pools were compared, is not
// confirmed.
func TestRecordOfAnotherNodesPool(t *testing.T) {
	w := newWorld(t)
	req := w.request(uid, w.k.AddGPU(0x3b))
	req.Devices[0].Pool = "node-2"
	w.mustPrepare(req)
	w.name = "node"
	_, err := w.plugin(nil).Prepare(t.Context(), req)
	if !wantRefused(t, err).Has(rule.AllocatedElsewhere) {
		t.Errorf("Prepare = %v, want %s", err, rule.AllocatedElsewhere)
	}
}

// TestQuarantineDoesNotKeepTheClaim: a claim whose device is quarantined, and that is
// allocated another one, is prepared. The quarantine goes on, and ends like any other.
func TestQuarantineDoesNotKeepTheClaim(t *testing.T) {
	for name, ended := range map[string]bool{"quarantined by its end": true, "quarantined on the way": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			bad, next := w.k.AddGPU(0x3b), w.k.AddGPU(0x3c)
			home := w.driver(bad)
			w.mustPrepare(w.request(uid, bad))
			w.k.OnReset(bad, w.resets(false))
			if ended {
				_, err := w.plugin(nil).Unprepare(t.Context(), uid)
				wantQuarantined(t, err)
				_, err = w.plugin(nil).Prepare(t.Context(), w.request(uid, bad))
				wantQuarantined(t, err)
			}
			if got := w.mustPrepare(w.request(uid, next)).Plan.Addresses(); !slices.Equal(got, []pci.Address{next}) {
				t.Errorf("prepared with %v, want %s", got, next)
			}
			aside := uid + ".0000-3b-00-0"
			if rec := w.record(aside); rec == nil || rec.State != journal.Quarantined || !slices.Equal(rec.Plan.Addresses(), []pci.Address{bad}) {
				t.Fatalf("the quarantine is %+v, want that of %s", rec, bad)
			}
			w.mustRecover()
			_, err := w.plugin(nil).Prepare(t.Context(), w.request("another", bad))
			if !wantRefused(t, err).Has(rule.Quarantined) || w.driver(bad) != "vfio-pci" {
				t.Errorf("the next tenant gets %v, driver %s; want %s and vfio-pci", err, w.driver(bad), rule.Quarantined)
			}
			says(t, err, "unprepare "+aside)
			if last := w.told(aside); len(last) == 0 || last[len(last)-1].Type != ledger.Quarantine {
				t.Errorf("the ledger has %+v, want %s as the last event", last, ledger.Quarantine)
			}
			w.k.OnReset(bad, w.resets(true))
			w.mustUnprepare(aside)
			if w.record(aside) != nil || w.driver(bad) != home {
				t.Errorf("record %+v, driver %s; want nil and %s", w.record(aside), w.driver(bad), home)
			}
			w.mustUnprepare(uid)
		})
	}
}

// TestCrashOfAReallocation: wherever it falls, the claim is prepared with its new device in
// the end, and the bad one is quarantined.
func TestCrashOfAReallocation(t *testing.T) {
	for at := 1; ; at++ {
		for _, after := range []bool{false, true} {
			w := newWorld(t)
			bad, next := w.k.AddGPU(0x3b), w.k.AddGPU(0x3c)
			w.mustPrepare(w.request(uid, bad))
			w.k.OnReset(bad, w.resets(false))
			power := &power{at: at, after: after}
			_, err := w.plugin(power).Prepare(t.Context(), w.request(uid, next))
			if !power.off {
				if err != nil || at < 10 {
					t.Errorf("after %d effects: %v, want nil after 10 or more", at, err)
				}
				return
			}
			w.mustRecover()
			if got := w.mustPrepare(w.request(uid, next)).Plan.Addresses(); !slices.Equal(got, []pci.Address{next}) {
				t.Fatalf("cut off at %d (after: %t): prepared with %v, want %s", at, after, got, next)
			}
			if rec := w.record(uid + ".0000-3b-00-0"); rec == nil || rec.State != journal.Quarantined {
				t.Fatalf("cut off at %d (after: %t): the record is %+v, want it quarantined", at, after, rec)
			}
			w.told(uid)
		}
	}
}

// TestUnprepareIf: what is in use again is left alone.
func TestUnprepareIf(t *testing.T) {
	w := newWorld(t)
	w.mustPrepare(w.request(uid, w.k.AddGPU(0x3b)))
	before, inUse := w.state(), errors.New("it is allocated again")
	check := func(_ context.Context, rec *journal.Record) error {
		if rec.ID() != uid {
			t.Errorf("asked about %s, want %s", rec.ID(), uid)
		}
		return inUse
	}
	if _, err := w.plugin(nil).UnprepareIf(t.Context(), uid, check); !errors.Is(err, inUse) {
		t.Errorf("UnprepareIf = %v, want %v", err, inUse)
	}
	w.unchanged(before)
	inUse = nil
	if release, err := w.plugin(nil).UnprepareIf(t.Context(), uid, check); err != nil || len(release.Proofs) != 1 || w.record(uid) != nil {
		t.Errorf("UnprepareIf = %+v, %v; record %+v; want one proof, and no record", release, err, w.record(uid))
	}
}

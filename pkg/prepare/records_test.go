package prepare_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

// recordFile returns the path of a claim's record.
func (w *world) recordFile(uid string) string {
	return filepath.Join(w.k.Root(), "var/lib/kata-vfio/journal", uid+".json")
}

// spoil changes the bytes of a claim's record.
func (w *world) spoil(uid string, old, new string) {
	w.t.Helper()
	data, err := os.ReadFile(w.recordFile(uid))
	if err != nil {
		w.t.Fatal(err)
	}
	spoilt := bytes.Replace(data, []byte(old), []byte(new), 1)
	if bytes.Equal(spoilt, data) {
		w.t.Fatalf("record has no %q, want it", old)
	}
	if err := os.WriteFile(w.recordFile(uid), spoilt, 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// spoilt are the ways in which a record can be unusable.
func spoilt() map[string]struct {
	old, new string
	err      error
	word     string
} {
	return map[string]struct {
		old, new string
		err      error
		word     string
	}{
		"damaged": {`"nvidia"`, `"nvidiA"`, journal.ErrDamaged, "put it back from a backup"},
		"newer":   {`"version": 1`, `"version": 2`, journal.ErrNewer, "run the plugin version that wrote it"},
	}
}

// TestOwnRecordUnusable: without its record nobody knows where the claim's
// functions belong, so nothing is done, and the file is named.
func TestOwnRecordUnusable(t *testing.T) {
	for name, tt := range spoilt() {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			gpu := w.k.AddGPU(0x3b)
			req := w.request(uid, gpu)
			w.mustPrepare(req)
			w.spoil(uid, tt.old, tt.new)
			bindings, writes := w.bindings(), len(w.k.Writes())
			_, prepareErr := w.plugin(nil).Prepare(t.Context(), req)
			_, unprepareErr := w.plugin(nil).Unprepare(t.Context(), uid)
			for _, err := range []error{prepareErr, unprepareErr} {
				if !errors.Is(err, tt.err) {
					t.Errorf("got %v, want %v", err, tt.err)
				}
				says(t, err, w.recordFile(uid), tt.word)
			}
			if now := lastWrites(w, writes); len(now) > 0 {
				t.Errorf("wrote %v, want nothing", now)
			}
			if got := w.bindings()[gpu]; got != bindings[gpu] {
				t.Errorf("bound %+v, want %+v as before", got, bindings[gpu])
			}
		})
	}
}

// TestAnothersRecordUnusable: a record that can't be read does not stop the
// claims that can't be meant by it, and stops those that could be.
func TestAnothersRecordUnusable(t *testing.T) {
	for name, tt := range spoilt() {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			held, free := w.k.AddGPU(0x3b), w.k.AddGPU(0x3c)
			w.mustPrepare(w.request(other, held))
			w.spoil(other, tt.old, tt.new)
			_, err := w.plugin(nil).Prepare(t.Context(), w.request(uid, held))
			if !wantRefused(t, err).Has(rule.DamagedRecord) {
				t.Errorf("refused by %v, want %s", err, rule.DamagedRecord)
			}
			says(t, err, "0000:3b:00.0 is on vfio-pci", w.recordFile(other), "may own it", "repair or remove")
			w.mustPrepare(w.request(uid, free))
		})
	}
}

// TestRecoverReportsUnusableRecords: they are named, the others recover, and
// the functions that they may own are left alone.
func TestRecoverReportsUnusableRecords(t *testing.T) {
	for name, tt := range spoilt() {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			gpu, whole := w.k.AddGPU(0x3b), w.k.AddGPU(0x3c)
			w.mustPrepare(w.request(other, gpu))
			w.mustPrepare(w.request(uid, whole))
			w.spoil(other, tt.old, tt.new)
			writes := len(w.k.Writes())
			r, err := w.plugin(nil).Recover(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if len(r.Unfinished) != 1 || !errors.Is(r.Unfinished[0], tt.err) {
				t.Errorf("unfinished: %v, want %v", r.Unfinished, tt.err)
			}
			if len(r.Kept) != 1 || r.Kept[0].UID != uid {
				t.Errorf("kept %v, want %s", r.Kept, uid)
			}
			if !w.hasSpec(other) {
				t.Error("the spec of the claim whose record can't be read is gone: its VM could not start again")
			}
			if now := lastWrites(w, writes); len(now) > 0 {
				t.Errorf("wrote %v, want nothing", now)
			}
		})
	}
}

// TestForeignFunctionOnVFIO: a function that was on vfio-pci when it came
// belongs to whoever bound it there, and stays there.
func TestForeignFunctionOnVFIO(t *testing.T) {
	w := newWorld(t)
	gpu := addGPU(w, func(f *sysfstest.Function) { f.Driver = "vfio-pci" })
	before, writes := w.state(), len(w.k.Writes())
	rec := w.mustPrepare(w.request(uid, gpu))
	if len(rec.Plan.Steps) > 0 {
		t.Errorf("steps %v, want none", rec.Plan.Steps)
	}
	if now := lastWrites(w, writes); len(now) > 0 {
		t.Errorf("wrote %v, want nothing", now)
	}
	if _, err := w.plugin(nil).Unprepare(t.Context(), uid); err != nil {
		t.Fatal(err)
	}
	w.unchanged(before)
}

// TestRecoverLeavesALockedClaimForLater: who was killed in a write that hangs
// in the kernel keeps its lock. The other claims do not wait for it.
func TestRecoverLeavesALockedClaimForLater(t *testing.T) {
	w := newWorld(t)
	w.mustPrepare(w.request("locked", w.k.AddGPU(0x3b)))
	w.mustPrepare(w.request("other", w.k.AddGPU(0x3c)))
	unlock, err := w.locks.Acquire(t.Context(), journal.Lock{Name: "claim-locked"})
	if err != nil {
		t.Fatal(err)
	}
	w.recover = time.Second
	r, err := w.plugin(nil).Recover(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Unfinished) != 1 || len(r.Kept) != 1 || r.Kept[0].UID != "other" {
		t.Errorf("recovery %+v, want one claim kept and the locked one unfinished", r)
	}
	says(t, errors.Join(r.Unfinished...), "locked", "not done within 1s")
	unlock()
	if r, err = w.plugin(nil).Recover(t.Context()); err != nil || len(r.Unfinished) > 0 || len(r.Kept) != 2 {
		t.Errorf("recovery afterwards %+v, %v; want both kept", r, err)
	}
}

// TestOrdersWaitForNoLockForEver: whoever hangs in the kernel keeps the device's lock. An operator's command says so, and one device does not
// hold up the stages of the others.
func TestOrdersWaitForNoLockForEver(t *testing.T) {
	for name, order := range map[string]func(ctx context.Context, w *world, gpu pci.Address) error{
		"decide a stage": func(ctx context.Context, w *world, _ pci.Address) error {
			ended, err := w.plugin(nil).EndedStages()
			if err != nil || len(ended) != 1 {
				return fmt.Errorf("ended stages %+v, %w; want one", ended, err)
			}
			return w.plugin(nil).ConcludeStage(ctx, &ended[0], clean(), stageImage)
		},
		"accept firmware": func(ctx context.Context, w *world, gpu pci.Address) error {
			return w.plugin(nil).AcceptFirmware(ctx, gpu, "ticket", alice)
		},
		"drain": func(ctx context.Context, w *world, gpu pci.Address) error {
			_, err := w.plugin(nil).Drain(ctx, journal.Drain{Address: gpu, Reason: "fan"}, alice)
			return err
		},
		"clear a quarantine": func(ctx context.Context, w *world, _ pci.Address) error {
			_, err := w.plugin(nil).Clear(ctx, uid, clearing(false))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			gpu := w.k.AddGPU(0x3b)
			w.sanitizes(v1alpha1.SanitizeRelease)
			w.tenancy("first", gpu)
			w.mustPrepare(w.stageRequest(gpu))
			w.mustUnprepare(stageUID)
			group, _ := w.k.Group(gpu)
			unlock, err := w.locks.Acquire(t.Context(), journal.Lock{Name: fmt.Sprintf("group-%d", group), Kept: true}, journal.Lock{Name: "claim-" + uid})
			if err != nil {
				t.Fatal(err)
			}
			defer unlock()
			w.recover = time.Second
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			says(t, order(ctx, w, gpu), "not done within 1s", "a later try continues")
		})
	}
}

// TestStartWaitsForNoLockForEver: neither for that of a standing binding, nor for a PF's.
func TestStartWaitsForNoLockForEver(t *testing.T) {
	w := newWorld(t)
	gpu, other := w.k.AddGPU(0x3b), w.k.AddGPU(0x3c)
	pf, _ := w.k.AddNIC(0x21, 0)
	w.boundByPolicy()
	w.mustUnprepare("standing-" + gpu.Label())
	w.mustUnprepare("standing-" + other.Label())
	unlock, err := w.locks.Acquire(t.Context(), journal.Lock{Name: "claim-standing-" + gpu.Label()}, journal.Lock{Name: "pf-" + pf.Label()})
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	w.recover = time.Second
	says(t, w.plugin(nil).BindByPolicy(t.Context()), "a later try continues")
	if w.driver(gpu) == "vfio-pci" || w.driver(other) != "vfio-pci" {
		t.Errorf("drivers %s and %s, want the one without a lock bound", w.driver(gpu), w.driver(other))
	}
	w.wantVFs(pf, 4)
	if got := w.provision(nil); !strings.Contains(got.Refused, "a later try continues") {
		t.Errorf("%+v, want it refused for now", got)
	}
}

package prepare_test

import (
	"errors"
	"os"
	"slices"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// TestEachWaitForTheDiskIsNeeded: Prepare waits four times for the disk, for the content of the intent and its entry in the directory,
// for the ledger, and for the content of the completed record. Without any one of these, a power failure after Prepare leaves a device
// that the next claim gets without a reset although a VM may have had it, a record that nobody can read any more, so that an operator must
// remove it, or a ledger that can't say when the claim got the device.
func TestEachWaitForTheDiskIsNeeded(t *testing.T) {
	for name, test := range map[string]struct {
		// lost takes back what a power failure may take without the wait. It gets what restores the ledger of before.
		lost func(t *testing.T, w *world, ledger func())
		// damaged is whether the record can't be read, unclean whether the next claim has the device reset first.
		damaged, unclean bool
		begins           string // the claim's first event
	}{
		"none": {
			lost:    func(*testing.T, *world, func()) {},
			unclean: true, begins: "prepare",
		},
		// A rename does not wait for the content (rename(2)): the name may lead to an empty file then. The completed record replaces the
		// intent, so that this is the same for both.
		"of the intent's or the completed record's content": {
			lost: func(t *testing.T, w *world, _ func()) {
				if err := os.Truncate(w.recordFile(uid), 0); err != nil {
					t.Fatal(err)
				}
			},
			damaged: true, unclean: true, begins: "prepare",
		},
		"of the intent's entry": {
			lost: func(t *testing.T, w *world, _ func()) {
				if err := os.Remove(w.recordFile(uid)); err != nil {
					t.Fatal(err)
				}
			},
			begins: "prepare",
		},
		"of the ledger": {
			lost:    func(_ *testing.T, _ *world, before func()) { before() },
			unclean: true, begins: "prepare late",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			gpu := w.k.AddGPU(0x3b)
			w.mustPrepare(w.request("before", gpu)) // which makes the ledger
			w.mustUnprepare("before")
			before := w.ledgerFiles()
			w.mustPrepare(w.request(uid, gpu))
			test.lost(t, w, before)
			w.k.Reboot()
			r, err := w.plugin(nil).Recover(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			damaged := slices.ContainsFunc(r.Unfinished, func(err error) bool { return errors.Is(err, journal.ErrDamaged) })
			if damaged != test.damaged {
				t.Errorf("a record is damaged: %t (%v), want %t", damaged, r.Unfinished, test.damaged)
			}
			if got, want := slices.Equal(w.unclean(), []pci.Address{gpu}), test.unclean; got != want {
				t.Errorf("the device is marked as not clean: %t, want %t", got, want)
			}
			if events := w.told(uid); len(events) == 0 || summary(&events[0]) != test.begins {
				t.Errorf("the claim's events are %v, want %s first", events, test.begins)
			}
		})
	}
}

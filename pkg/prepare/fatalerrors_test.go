package prepare_test

import (
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/inventory"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// fatal reports whether the function is one with fatal errors, as a plugin sees that started just now.
func (w *world) fatal(a pci.Address) bool {
	w.t.Helper()
	snap, err := inventory.Scan(w.t.Context(), w.fs)
	if err != nil {
		w.t.Fatal(err)
	}
	n, err := w.plugin(nil).PlanNode(w.t.Context(), snap)
	if err != nil {
		w.t.Fatal(err)
	}
	return n.FatalErrors[a]
}

// TestFatalErrorsCountUntilTheNextProof: a reset that is proven accounts for them, and so does an operator who puts the device to use again.
func TestFatalErrorsCountUntilTheNextProof(t *testing.T) {
	w := newWorld(t)
	gpu := w.k.AddGPU(0x3b)
	expect := func(when string, want bool) {
		t.Helper()
		if got := w.fatal(gpu); got != want {
			t.Errorf("%s: fatal errors: %t, want %t", when, got, want)
		}
	}
	w.mustPrepare(w.request(uid, gpu))
	expect("without any", false)
	w.k.CountFatalErrors(gpu, 2)
	expect("while a VM has it", true)
	w.mustUnprepare(uid)
	expect("after a proven reset", false)
	w.k.CountFatalErrors(gpu, 3)
	expect("one more, while nobody has it", true)
	by := ledger.Operator{Sudo: "alice"}
	if _, err := w.plugin(nil).Drain(t.Context(), journal.Drain{Address: gpu, Reason: "look at it"}, by); err != nil {
		t.Fatal(err)
	}
	expect("drained", true)
	if _, _, err := w.plugin(nil).Undrain(t.Context(), gpu, "it is well", by); err != nil {
		t.Fatal(err)
	}
	expect("undrained", false)
	w.k.CountFatalErrors(gpu, 1)
	expect("counted from the beginning, as after it was removed and found again", true)
	w.k.CountFatalErrors(gpu, 3)
	w.k.Reboot()
	w.k.CountFatalErrors(gpu, 3)
	expect("as many in another boot", true)
}

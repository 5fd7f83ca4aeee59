package writer_test

import (
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/ledger/writer"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

func tellOf(t *testing.T, w *writer.Writer, kind ledger.Type, a pci.Address, reason string) {
	t.Helper()
	e := ledger.Event{Type: kind, Result: ledger.OK, Reason: reason, Devices: []ledger.Device{{Address: a}}}
	if _, err := w.Append(t.Context(), e); err != nil {
		t.Fatal(err)
	}
}

// TestRememberReadsTheLedgerOnce: one pass finds the last events of many functions, and that there are none. After that only what
// was written since is read, by whichever process.
func TestRememberReadsTheLedgerOnce(t *testing.T) {
	c := config(t)
	c.SegmentBytes = 2000
	w := open(t, c)
	bound, released, free := pci.Address{Bus: 1}, pci.Address{Bus: 2}, pci.Address{Bus: 3}
	types := []ledger.Type{ledger.Bind, ledger.Release}
	for range 10 {
		tellOf(t, w, ledger.Release, bound, "first")
		tellOf(t, w, ledger.Bind, bound, "second")
		tellOf(t, w, ledger.Bind, released, "first")
		tellOf(t, w, ledger.Release, released, "second")
		tellOf(t, w, ledger.Reset, free, "of no such type")
	}
	want := func(a pci.Address, reason string) {
		t.Helper()
		e, err := w.Last(t.Context(), a, types...)
		if err != nil || (e == nil) != (reason == "") || e != nil && e.Reason != reason {
			t.Errorf("Last(%s) = %+v, %v; want %q", a, e, err, reason)
		}
	}
	all := []pci.Address{bound, released, free}
	for _, a := range all {
		want(a, map[pci.Address]string{bound: "second", released: "second"}[a])
	}
	remember := func() {
		t.Helper()
		if err := w.Remember(t.Context(), all, types...); err != nil {
			t.Fatal(err)
		}
	}
	remember()
	written := segments(t, c.Dir)
	restore := unreadable(t, c.Dir, written[:len(written)-1])
	remember() // the next look
	want(bound, "second")
	want(released, "second")
	want(free, "")
	other := open(t, c) // another process
	for range 10 {
		tellOf(t, other, ledger.Bind, released, "third")
		tellOf(t, w, ledger.Bind, free, "later")
	}
	if len(segments(t, c.Dir)) < len(written)+2 {
		t.Fatal("no segment was begun since")
	}
	want(bound, "second")
	want(released, "third")
	want(free, "later")
	all = []pci.Address{bound, released, {Bus: 4}}
	if err := w.Remember(t.Context(), all, types...); err == nil {
		t.Error("a function that was not named before is known without a pass")
	}
	restore()
	remember()
	want(released, "third")
	if e, err := w.Last(t.Context(), pci.Address{Bus: 4}, types...); e != nil || err != nil {
		t.Errorf("Last = %+v, %v; want none", e, err)
	}
}

// TestRememberedEventsAreOfThisBoot, whichever segment they share with those of an earlier one.
func TestRememberedEventsAreOfThisBoot(t *testing.T) {
	c := config(t)
	gpu := pci.Address{Bus: 0x3b}
	tellOf(t, open(t, c), ledger.Bind, gpu, "earlier")
	c.BootID = "boot-2"
	w := open(t, c)
	tellOf(t, w, ledger.Release, gpu, "now")
	if err := w.Remember(t.Context(), []pci.Address{gpu}, ledger.Bind, ledger.Release); err != nil {
		t.Fatal(err)
	}
	if e, err := w.Last(t.Context(), gpu, ledger.Bind); e != nil || err != nil {
		t.Errorf("Last = %+v, %v; want none of an earlier boot", e, err)
	}
	if e, err := w.Last(t.Context(), gpu, ledger.Release); e == nil || err != nil {
		t.Errorf("Last = %+v, %v; want the one of this boot", e, err)
	}
}

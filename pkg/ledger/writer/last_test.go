package writer_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// TestTheLastEventOfThisBoot is found in whichever segment, and what is older is not
// even read: with years of history that would be gigabytes at each look.
func TestTheLastEventOfThisBoot(t *testing.T) {
	c := config(t)
	c.SegmentBytes = 600
	gpu := pci.Address{Bus: 0x3b}
	bind := ledger.Event{Type: ledger.Bind, Result: ledger.OK, Devices: []ledger.Device{{Address: gpu}}}
	w := open(t, c)
	if _, err := w.Append(t.Context(), bind); err != nil {
		t.Fatal(err)
	}
	add(t, w, "a", "b", "c")
	if e, err := w.Last(t.Context(), gpu, ledger.Bind); err != nil || e == nil {
		t.Fatalf("Last = %+v, %v; want the event", e, err)
	}
	oldest := filepath.Join(c.Dir, ledger.SegmentName(0))
	c.BootID = "boot-2"
	w = open(t, c)
	add(t, w, "d", "e", "f", "g")
	unreadable := filepath.Join(t.TempDir(), "moved")
	if err := os.Rename(oldest, unreadable); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(oldest, 0o700); err != nil { // which can't be read as a file
		t.Fatal(err)
	}
	if e, err := w.Last(t.Context(), gpu, ledger.Bind); err != nil || e != nil {
		t.Errorf("Last = %+v, %v; want none, without a look at the boot before", e, err)
	}
}

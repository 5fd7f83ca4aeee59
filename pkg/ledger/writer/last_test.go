package writer_test

import (
	"fmt"
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

// TestTenanciesAreReadAtOnce: one pass finds those of many claims, each from its last
// Prepare on, in whichever segment that lies.
func TestTenanciesAreReadAtOnce(t *testing.T) {
	c := config(t)
	c.SegmentBytes = 2000
	w := open(t, c)
	uids := []string{"never"}
	tell := func(kind ledger.Type, uid string) {
		t.Helper()
		if _, err := w.Append(t.Context(), ledger.Event{Type: kind, Result: ledger.OK, Claim: &ledger.Claim{UID: uid}}); err != nil {
			t.Fatal(err)
		}
	}
	for _, kind := range []ledger.Type{ledger.Prepare, ledger.Unprepare, ledger.Prepare, ledger.Bind, ledger.Open} {
		for i := range 20 {
			uid := fmt.Sprint("claim-", i)
			tell(kind, uid)
			if kind == ledger.Open {
				uids = append(uids, uid)
			}
		}
	}
	tell(ledger.Open, "never") // begun before there was a ledger
	all, err := w.Tenancies(t.Context(), uids)
	if err != nil || len(all) != 20 {
		t.Fatalf("%d tenancies, %v; want 20", len(all), err)
	}
	for uid, events := range all {
		if len(events) != 3 || events[0].Type != ledger.Prepare || events[1].Type != ledger.Bind || events[2].Type != ledger.Open {
			t.Errorf("claim %s: %+v", uid, events)
		}
		if one, err := w.Tenancy(t.Context(), uid); err != nil || len(one) != 3 {
			t.Errorf("claim %s alone: %+v, %v", uid, one, err)
		}
	}
}

package writer_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/ledger/writer"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// TestLastEventOfThisBoot is found in whichever segment, and what is older is not
// even read: with years of history that would be gigabytes at each look.
func TestLastEventOfThisBoot(t *testing.T) {
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

// TestRecallReadsTheLedgerOnce: one pass finds the tenancies of many claims, each from its
// last Prepare on, in whichever segment that lies. After that only what was written since
// is read.
func TestRecallReadsTheLedgerOnce(t *testing.T) {
	c := config(t)
	c.SegmentBytes = 2000
	w := open(t, c)
	tell := func(w *writer.Writer, kind ledger.Type, uid string) {
		t.Helper()
		if _, err := w.Append(t.Context(), ledger.Event{Type: kind, Result: ledger.OK, Claim: &ledger.Claim{UID: uid}}); err != nil {
			t.Fatal(err)
		}
	}
	var uids []string
	for _, kind := range []ledger.Type{ledger.Prepare, ledger.Unprepare, ledger.Prepare, ledger.Bind, ledger.Open} {
		for i := range 20 {
			tell(w, kind, fmt.Sprint("claim-", i))
		}
	}
	for i := range 20 {
		uids = append(uids, fmt.Sprint("claim-", i))
	}
	tell(w, ledger.Open, "never") // begun before there was a ledger
	want := func(uid string, kinds ...ledger.Type) {
		t.Helper()
		events, err := w.Tenancy(t.Context(), uid)
		var got []ledger.Type
		for i := range events {
			got = append(got, events[i].Type)
		}
		if diff := cmp.Diff(kinds, got); err != nil || diff != "" {
			t.Errorf("claim %s (-want +got):\n%s%v", uid, diff, err)
		}
	}
	all := func() {
		t.Helper()
		for _, uid := range uids {
			want(uid, ledger.Prepare, ledger.Bind, ledger.Open)
		}
		want("never")
	}
	all()
	forget, err := w.Recall(t.Context(), append(uids, "never"))
	if err != nil {
		t.Fatal(err)
	}
	written := segments(t, c.Dir)
	restore := unreadable(t, c.Dir, written[:len(written)-1])
	all()
	other := open(t, c) // another process
	for range 20 {
		tell(other, ledger.Close, "claim-3")
		tell(w, ledger.Prepare, "claim-4")
		tell(w, ledger.Close, "never")
	}
	if len(segments(t, c.Dir)) < len(written)+2 {
		t.Fatal("no segment was begun since")
	}
	want("claim-3", append([]ledger.Type{ledger.Prepare, ledger.Bind, ledger.Open}, slices.Repeat([]ledger.Type{ledger.Close}, 20)...)...)
	want("claim-4", ledger.Prepare)
	want("claim-5", ledger.Prepare, ledger.Bind, ledger.Open)
	want("never")
	forget()
	if _, err := w.Tenancy(t.Context(), "claim-5"); err == nil {
		t.Error("it is from memory though it was forgotten")
	}
	restore()
	want("claim-5", ledger.Prepare, ledger.Bind, ledger.Open)
}

// TestTornWriteIsNotRecalled, since nobody was told that it was there, and what takes its
// place is.
func TestTornWriteIsNotRecalled(t *testing.T) {
	c := config(t)
	w := open(t, c)
	add(t, w, "begun", "cut off")
	file := filepath.Join(c.Dir, segments(t, c.Dir)[0])
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	checkpoint := bytes.LastIndex(whole, []byte("{\"checkpoint\":"))
	if err := os.Truncate(file, int64(checkpoint)); err != nil {
		t.Fatal(err)
	}
	w = writer.New(c)
	if _, err := w.Recall(t.Context(), []string{"u-1"}); err != nil {
		t.Fatal(err)
	}
	add(t, w, "again")
	events, err := w.Tenancy(t.Context(), "u-1")
	if err != nil || len(events) != 1 || events[0].Reason != "again" {
		t.Errorf("%+v, %v; want what was written behind the torn write", events, err)
	}
}

// segments returns the names of a ledger's segments, in order.
func segments(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if ledger.IsSegment(e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names
}

// unreadable puts directories in the place of files until restore is called.
func unreadable(t *testing.T, dir string, names []string) (restore func()) {
	t.Helper()
	aside := t.TempDir()
	for _, name := range names {
		if err := errors.Join(os.Rename(filepath.Join(dir, name), filepath.Join(aside, name)), os.Mkdir(filepath.Join(dir, name), 0o700)); err != nil {
			t.Fatal(err)
		}
	}
	return func() {
		for _, name := range names {
			if err := errors.Join(os.Remove(filepath.Join(dir, name)), os.Rename(filepath.Join(aside, name), filepath.Join(dir, name))); err != nil {
				t.Fatal(err)
			}
		}
	}
}

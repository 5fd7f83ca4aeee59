package journal_test

import (
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
)

// TestYoungRecordIsDecodedOnce: claims that begin at once read the records of each other again and again.
func TestYoungRecordIsDecodedOnce(t *testing.T) {
	s, _ := open(t)
	list := func() *journal.Record {
		t.Helper()
		all, errs := s.List()
		if len(all) != 1 || len(errs) > 0 {
			t.Fatalf("List = %v, %v; want one record", all, errs)
		}
		return all[0]
	}
	r := record("a")
	if err := s.Save(r); err != nil {
		t.Fatal(err)
	}
	first := list()
	if again := list(); again != first {
		t.Error("the same content was decoded again")
	}
	r.State = journal.Prepared
	if err := s.Replace(r); err != nil {
		t.Fatal(err)
	}
	if now := list(); now.State != journal.Prepared || first.State != journal.Preparing {
		t.Errorf("after a change the states are %s now and %s before; want %s and %s", now.State, first.State, journal.Prepared, journal.Preparing)
	}
}

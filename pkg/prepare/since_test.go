package prepare_test

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
)

// TestTryThatIsRepeatedMakesNoStateYounger: how long a claim is on its way back is
// since the first try, however often the kubelet asks.
func TestTryThatIsRepeatedMakesNoStateYounger(t *testing.T) {
	w := newWorld(t)
	gpu := w.k.AddGPU(0x3b)
	w.mustPrepare(w.request(uid, gpu))
	w.k.OnWrite(func(path, _ string) error {
		if unbinds(path) {
			return unix.EIO
		}
		return nil
	})
	const long = "2026-01-01T00:00:00Z"
	for range 2 {
		if _, err := w.plugin(nil).Unprepare(t.Context(), uid); err == nil {
			t.Fatal("the claim ended")
		}
		rec := *w.record(uid)
		if rec.State != journal.Cleaned || rec.Reason == "" {
			t.Fatalf("record is %+v, want it cleaned, with a reason", rec)
		}
		rec.Since = long
		if err := w.records.Save(&rec); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.plugin(nil).Unprepare(t.Context(), uid); err == nil {
		t.Fatal("the claim ended")
	}
	if got := w.record(uid).Since; got != long {
		t.Errorf("since %s, want %s", got, long)
	}
}

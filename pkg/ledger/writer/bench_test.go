package writer_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/ledger/writer"
)

// BenchmarkAppend is one event by itself: encode, sign, write, fsync.
func BenchmarkAppend(b *testing.B) {
	w := writer.New(writer.Config{Dir: b.TempDir(), Node: "node-1"})
	for b.Loop() {
		if _, err := w.Append(b.Context(), event("b")); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkVerify is a ledger of 5,000 events, each signed, of 50 with -short.
func BenchmarkVerify(b *testing.B) {
	dir := b.TempDir()
	w := writer.New(writer.Config{Dir: dir, Node: "node-1", SegmentBytes: 1 << 20})
	events := 5000
	if testing.Short() {
		events = 50
	}
	for i := range events {
		if _, err := w.Append(b.Context(), event(fmt.Sprint(i))); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		if r, err := ledger.Verify(os.DirFS(dir), ledger.Options{}); err != nil || !r.OK() || r.Size != int64(events) {
			b.Fatalf("%+v, %v", r, err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(events), "ns/event")
}

package writer_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/ledger/writer"
)

// TestReadyShowsWhatRefusesEvents without a write.
func TestReadyShowsWhatRefusesEvents(t *testing.T) {
	c := config(t)
	w := open(t, c)
	add(t, w, "a", "b")
	before := segmentBytes(t, c.Dir)
	if err := w.Ready(t.Context()); err != nil {
		t.Errorf("Ready = %v", err)
	}
	if after := segmentBytes(t, c.Dir); after != before {
		t.Errorf("the ledger has %d bytes and had %d", after, before)
	}
	flip(t, c.Dir)
	if err := writer.New(c).Ready(t.Context()); err == nil {
		t.Error("a damaged ledger is ready")
	}
}

// segmentBytes returns the length of a ledger's newest segment.
func segmentBytes(t *testing.T, dir string) int {
	t.Helper()
	return len(newestSegment(t, dir))
}

func newestSegment(t *testing.T, dir string) []byte {
	t.Helper()
	names := segments(t, dir)
	data, err := os.ReadFile(filepath.Join(dir, names[len(names)-1]))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// flip changes a byte of an event in the newest segment.
func flip(t *testing.T, dir string) {
	t.Helper()
	data, names := newestSegment(t, dir), segments(t, dir)
	data[bytes.Index(data, []byte(`"type"`))+9] ^= 1
	if err := os.WriteFile(filepath.Join(dir, names[len(names)-1]), data, 0o600); err != nil {
		t.Fatal(err)
	}
}

package facts_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/ledger/writer"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// cutLedger is a node whose ledger ends in the middle of a write, and what is missing.
func cutLedger(t *testing.T) (root, segment, rest string) {
	t.Helper()
	root = t.TempDir()
	w, err := writer.Open(t.Context(), writer.Config{Dir: filepath.Join(root, ledger.DefaultDir), Node: "n1"})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := w.Append(t.Context(), ledger.Event{Type: ledger.Prepare}); err != nil {
			t.Fatal(err)
		}
	}
	segment = filepath.Join(root, ledger.DefaultDir, ledger.SegmentName(0))
	whole, err := os.ReadFile(segment)
	if err != nil {
		t.Fatal(err)
	}
	cut := len(whole) - 20
	if err := os.WriteFile(segment, whole[:cut], 0o600); err != nil {
		t.Fatal(err)
	}
	return root, segment, string(whole[cut:])
}

// TestLedgerThatIsBeingWrittenVerifies: the plugin may be in the middle of a write when the node is looked at, and what a
// crash cut off stays cut off.
func TestLedgerThatIsBeingWrittenVerifies(t *testing.T) {
	for _, written := range []bool{true, false} {
		root, segment, rest := cutLedger(t)
		fs, err := sysfs.Open(root)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = fs.Close() })
		tapped := fs.WithTap(func(a sysfs.Access) {
			if !written || rest == "" || a.Op != sysfs.OpRead || filepath.Base(a.Path) != filepath.Base(segment) {
				return
			}
			if err := appendTo(segment, rest); err != nil {
				t.Error(err)
			}
			rest = ""
		})
		r, fact := facts.New(tapped, &device.Snapshot{}).Ledger()
		if !fact.OK() || (len(r.Problems) == 0) != written {
			t.Errorf("the write is completed: %v; the ledger is %v, with the problems %v", written, fact, r.Problems)
		}
	}
}

func appendTo(name, text string) error {
	f, err := os.OpenFile(name, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	if _, err := f.WriteString(text); err != nil {
		return err
	}
	return f.Close()
}

// TestLedgerFactCounts: one event is not "1 events".
func TestLedgerFactCounts(t *testing.T) {
	for events, want := range map[int]string{1: "1 event in 1 segment", 2: "2 events in 1 segment"} {
		root := t.TempDir()
		w, err := writer.Open(t.Context(), writer.Config{Dir: filepath.Join(root, ledger.DefaultDir), Node: "n1"})
		if err != nil {
			t.Fatal(err)
		}
		for range events {
			if _, err := w.Append(t.Context(), ledger.Event{Type: ledger.Prepare}); err != nil {
				t.Fatal(err)
			}
		}
		fs, err := sysfs.Open(root)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = fs.Close() })
		if _, fact := facts.New(fs, &device.Snapshot{}).Ledger(); fact.Value != want {
			t.Errorf("got %q, want %q", fact.Value, want)
		}
	}
}

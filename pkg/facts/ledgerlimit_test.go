package facts

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/ledger/writer"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// TestLedgerOfDefaultRetentionIsRead: with what comes on top of the events that the plugin keeps.
func TestLedgerOfDefaultRetentionIsRead(t *testing.T) {
	if maxLedger < 2*writer.DefaultRetainBytes {
		t.Errorf("an audit reads %d bytes of a ledger, and the plugin keeps %d by default", maxLedger, writer.DefaultRetainBytes)
	}
}

// TestSegmentThatIsReadAgainCountsOnce: the plugin may be writing it.
func TestSegmentThatIsReadAgainCountsOnce(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, ledger.DefaultDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	first, second := ledger.SegmentName(0), ledger.SegmentName(10)
	for name, size := range map[string]int{first: 60, second: 40} {
		if err := os.WriteFile(filepath.Join(dir, name), make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	fsys, err := sysfs.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = fsys.Close() })
	l := newLedgerFiles(fsys)
	l.limit = 100
	for _, name := range []string{first, second, first, second, second} {
		if _, err := l.Open(name); err != nil {
			t.Errorf("open %s: %v; want no error", name, err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, second), make([]byte, 41), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Open(second); err == nil {
		t.Error("a ledger of 101 bytes is read, and the limit is 100")
	}
}

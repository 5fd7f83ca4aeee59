package journal_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
)

// TestFormatIsUnchanged: a record that is on a node's disk is read without a loss, and written byte for byte as it is. A
// change that this test finds needs a new version, because plugins of both versions run on a node during an update.
func TestFormatIsUnchanged(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "*.json"))
	if err != nil || len(files) != 4 {
		t.Fatalf("records %v, %v; want 4", files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			before, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			r, err := journal.Decode(before)
			if err != nil || r.State != journal.Prepared || r.Sandbox == nil || len(r.Plan.Functions) == 0 {
				t.Fatalf("Decode = %+v, %v; want a prepared record with a sandbox and functions", r, err)
			}
			after, err := journal.Encode(r)
			if err != nil || !bytes.Equal(before, after) {
				t.Errorf("Encode: %v; the file changes (-was +now):\n%s", err, cmp.Diff(string(before), string(after)))
			}
		})
	}
}

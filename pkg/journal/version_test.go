package journal_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// old are records that earlier commits' own code wrote, by file, and the format that
// holds all of each.
func old() map[string]int {
	return map[string]int{
		"e312b59/one.json": 1, "e312b59/three.json": 1,
		"f592268/one.json": 1, "f592268/three.json": 1, "f592268/pool.json": 2, "f592268/pair.json": 2,
	}
}

// place puts an old record into a journal of its own.
func place(t *testing.T, file string) (s *journal.Store, dir, id string, data []byte) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	r, err := journal.Decode(data)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	s, dir = open(t)
	if err := os.WriteFile(filepath.Join(dir, r.ID()+".json"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	return s, dir, r.ID(), data
}

// TestOldRecordsAreReadAndUpgraded: nothing of them changes but the format, which
// changes where an older plugin would lose something, with a copy until the next start.
func TestOldRecordsAreReadAndUpgraded(t *testing.T) {
	for file, want := range old() {
		t.Run(file, func(t *testing.T) {
			s, dir, id, before := place(t, file)
			was, err := s.Load(id)
			if err != nil || was.State != journal.Prepared || was.Sandbox == nil || len(was.Plan.Functions) == 0 {
				t.Fatalf("Load = %+v, %v", was, err)
			}
			upgraded, err := s.Upgrade(id)
			if err != nil || upgraded != (want == 2) {
				t.Fatalf("Upgrade = %t, %v", upgraded, err)
			}
			after, err := os.ReadFile(filepath.Join(dir, id+".json"))
			if err != nil || formatOf(t, after) != want {
				t.Errorf("format %d, %v; want %d", formatOf(t, after), err, want)
			}
			now, err := s.Load(id)
			if diff := cmp.Diff(was, now); err != nil || diff != "" {
				t.Errorf("%v; an upgrade changes the record (-was +now):\n%s", err, diff)
			}
			copied, err := os.ReadFile(filepath.Join(dir, "former", id+".json"))
			if upgraded && (err != nil || string(copied) != string(before)) {
				t.Errorf("the copy: %v", err)
			}
			if again, err := s.Upgrade(id); again || err != nil {
				t.Errorf("a second Upgrade = %t, %v", again, err)
			}
			if records, errs := s.List(); len(records) != 1 || len(errs) > 0 {
				t.Errorf("List = %d records, %v", len(records), errs)
			}
			for _, ended := range []bool{false, true} { // starts don't count, the claim's end does
				if ended {
					if err := s.Delete(id); err != nil {
						t.Fatal(err)
					}
				}
				if err := s.DropFormer(); err != nil {
					t.Fatal(err)
				}
				if _, err := os.Stat(filepath.Join(dir, "former", id+".json")); upgraded && (err == nil) == ended {
					t.Errorf("the copy is there: %t, its claim has ended: %t", err == nil, ended)
				}
			}
		})
	}
}

// formatOf returns the version that a file says.
func formatOf(t *testing.T, data []byte) int {
	t.Helper()
	var envelope struct{ Version int }
	if err := json.Unmarshal(data, &envelope); err != nil {
		t.Fatal(err)
	}
	return envelope.Version
}

// TestNothingIsExportedFromNowhere: a path that is mistyped is no journal without records.
func TestNothingIsExportedFromNowhere(t *testing.T) {
	to := filepath.Join(t.TempDir(), "export")
	n, err := journal.OpenReadOnly(filepath.Join(t.TempDir(), "none")).Export(1, to)
	if _, there := os.Stat(to); !errors.Is(err, os.ErrNotExist) || there == nil {
		t.Errorf("Export = %d, %v; written: %t", n, err, there == nil)
	}
}

// TestRecordsGoBackToAnOlderPlugin: byte for byte what that wrote, or not at all.
func TestRecordsGoBackToAnOlderPlugin(t *testing.T) {
	for file, version := range old() {
		t.Run(file, func(t *testing.T) {
			s, _, id, before := place(t, file)
			to := filepath.Join(t.TempDir(), "export")
			n, err := s.Export(1, to)
			if version == 2 {
				var lost *journal.LostError
				if !errors.As(err, &lost) || len(lost.What) == 0 || !strings.Contains(err.Error(), "unprepare its claim") {
					t.Fatalf("Export = %v, want what would be lost", err)
				}
				if _, err := os.Stat(to); !errors.Is(err, os.ErrNotExist) {
					t.Error("something was written")
				}
				if _, err := s.Export(2, to); err != nil {
					t.Errorf("as version 2: %v", err)
				}
				return
			}
			after, readErr := os.ReadFile(filepath.Join(to, id+".json"))
			if err != nil || n != 1 || readErr != nil || string(after) != string(before) {
				t.Errorf("Export = %d, %v, %v:\n%s", n, err, readErr, cmp.Diff(string(before), string(after)))
			}
		})
	}
}

// TestExportLosesNothing of what stands beside the records.
func TestExportLosesNothing(t *testing.T) {
	s, dir, _, _ := place(t, "e312b59/one.json")
	gpu := pci.Address{Bus: 0x3b}
	if err := s.MarkNeedsReset(journal.ResetMark{Address: gpu, Why: "of a test"}); err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(t.TempDir(), "export")
	if n, err := s.Export(1, to); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	if marks, err := journal.OpenReadOnly(to).NeedsReset(); err != nil || len(marks) != 1 || marks[0].Address != gpu || marks[0].Why != "of a test" {
		t.Errorf("marks %v, %v", marks, err)
	}
	if err := s.MarkDrained(journal.Drain{Address: gpu, Reason: "fan"}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Export(1, to+"2"); err == nil || !strings.Contains(err.Error(), "undrain it first") {
		t.Errorf("with a drain: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "b.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Export(2, to+"3"); !errors.Is(err, journal.ErrDamaged) {
		t.Errorf("with a damaged record: %v", err)
	}
	if _, err := s.Export(3, to+"4"); err == nil {
		t.Error("as version 3: no error")
	}
}

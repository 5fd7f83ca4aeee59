package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/archive"
	"github.com/kata-vfio/kata-vfio/pkg/check/board"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/ledger/writer"
)

// TestArchiveIsJudgedAsItsNode: of every board, all that any check reads is in the
// archive: the report is the same but for its subject.
func TestArchiveIsJudgedAsItsNode(t *testing.T) {
	for _, b := range board.All() {
		t.Run(b.Name, func(t *testing.T) {
			tree := b.Build(t)
			sameFindings(t, tree.Root())
		})
	}
}

// sameFindings collects the node below root and compares what is said of it and
// of the archive.
func sameFindings(t *testing.T, root string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "node.tgz")
	_, _, err := execute(t, "collect", "--root", root, "-f", file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(findingsOf(t, "node", "--root", root), findingsOf(t, "eval", file)); diff != "" {
		t.Errorf("the archive is judged in another way (-node +archive):\n%s", diff)
	}
	devices, _, err1 := execute(t, "devices", "-o", "json", "--root", root)
	copied, _, err2 := execute(t, "devices", "-o", "json", "--root", file)
	if err1 != nil || err2 != nil || devices != copied {
		t.Errorf("the archive has other devices: %v, %v: %s", err1, err2, cmp.Diff(devices, copied))
	}
	return file
}

// findingsOf returns a report as it is printed, without its subject.
func findingsOf(t *testing.T, args ...string) string {
	t.Helper()
	stdout, _, err := execute(t, append(args, "-o", "json", "--severity", "info")...)
	if err != nil && exitCode(err) != exitFindings {
		t.Fatal(err)
	}
	var doc map[string]json.RawMessage
	if err := json.Unmarshal([]byte(stdout), &doc); err != nil {
		t.Fatal(err)
	}
	delete(doc, "subject")
	text, err := json.MarshalIndent(doc, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestUnpackedArchiveIsRemoved: nothing stays behind in the directory for
// temporary files.
func TestUnpackedArchiveIsRemoved(t *testing.T) {
	file := sameFindings(t, board.Server(t).Root())
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	if _, _, err := execute(t, "devices", "--root", file); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(tmp)
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestDiff: a fault that is planted between two looks is what diff tells of, from
// archives and from reports, and what it did not find before is not held against
// the node when it has gone.
func TestDiff(t *testing.T) {
	tree := board.Server(t)
	dir := t.TempDir()
	look := func(name string) (archived, report string) {
		archived, report = filepath.Join(dir, name+".tgz"), filepath.Join(dir, name+".json")
		_, _, err := execute(t, "collect", "--root", tree.Root(), "-f", archived)
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = execute(t, "node", "--root", tree.Root(), "-o", "json", "--file", report)
		if err != nil && exitCode(err) != exitFindings {
			t.Fatal(err)
		}
		return archived, report
	}
	goodArchive, goodReport := look("good")
	tree.SetParameter("vfio", "enable_unsafe_noiommu_mode", "Y")
	badArchive, badReport := look("bad")
	for _, c := range []struct {
		name, older, newer string
		code               int
		want               string
	}{
		{"archives", goodArchive, badArchive, exitFindings, "new  critical  IOM-003  fail  node"},
		{"reports", goodReport, badReport, exitFindings, "new  critical  IOM-003  fail  node"},
		{"one of each", goodArchive, badReport, exitFindings, "new  critical  IOM-003  fail  node"},
		{"it was mended", badArchive, goodArchive, 0, "gone  critical  IOM-003  was fail"},
		{"itself", badArchive, badReport, 0, "0 new, 0 changed, 0 gone, "},
	} {
		t.Run(c.name, func(t *testing.T) {
			stdout, _, err := execute(t, "diff", c.older, c.newer)
			code := 0
			if err != nil {
				code = exitCode(err)
			}
			if code != c.code || !strings.Contains(stdout, c.want) {
				t.Errorf("exit %d (%v), want %d and %q:\n%s", code, err, c.code, c.want, stdout)
			}
		})
	}
	for name, content := range map[string]string{"empty": "", "other": "{}", "words": `{"findings":[{"id":"X","state":"hm","severity":"low"}]}`} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := execute(t, "diff", goodReport, file); err == nil || exitCode(err) != exitFailed {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestAnArchiveHasTheLedgerAndNotItsKeys: who has it can ask who had what, and
// neither sign events nor look pseudonyms up.
func TestAnArchiveHasTheLedgerAndNotItsKeys(t *testing.T) {
	tree := board.Server(t)
	dir := tree.Path(ledgerDir)
	w, err := writer.Open(t.Context(), writer.Config{Dir: dir, Node: "n1", BootID: "b", Pseudonyms: true})
	if err != nil {
		t.Fatal(err)
	}
	claim := &ledger.Claim{UID: "uid-1", Namespace: "team-a", Name: "gpu"}
	if _, err := w.Append(t.Context(), ledger.Event{
		Type: ledger.Prepare, Result: ledger.OK, Claim: claim, Devices: []ledger.Device{{Address: tree.Devices["gpu0"]}},
	}); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "node.tgz")
	if _, _, err := execute(t, "collect", "--root", tree.Root(), "-f", file); err != nil {
		t.Fatal(err)
	}
	stdout, _, err := execute(t, "claim", "uid-1", "--root", file)
	if err != nil || !strings.Contains(stdout, "0000:3b:00.0") || !strings.Contains(stdout, "signatures are sound") {
		t.Errorf("%v:\n%s", err, stdout)
	}
	a, err := archive.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = a.Close() }()
	for _, name := range []string{ledger.PrivateKeyFile, ledger.PseudonymsFile} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		if data, _ := os.ReadFile(filepath.Join(a.Path(), ledgerDir, name)); len(data) > 0 {
			t.Errorf("the archive has the ledger's %s", name)
		}
	}
}

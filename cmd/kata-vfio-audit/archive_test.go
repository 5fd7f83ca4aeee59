package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/check/board"
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

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/audit/archive"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/ledger/writer"
	"github.com/kata-vfio/kata-vfio/test/board"
)

// TestArchiveIsJudgedAsItsNode: of every board, all that any check reads is in the
// archive: the report is the same except for its subject.
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
	_, _, err := execute(t, "collect", "--root", root, "--file", file)
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
		_, _, err := execute(t, "collect", "--root", tree.Root(), "--file", archived)
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
		{"archives", goodArchive, badArchive, exitFindings, "new     critical  IOM-003  fail   node"},
		{"reports", goodReport, badReport, exitFindings, "new     critical  IOM-003  fail   node"},
		{"one of each", goodArchive, badReport, exitFindings, "new     critical  IOM-003  fail   node"},
		{"it was mended", badArchive, goodArchive, 0, "gone    critical  IOM-003  was fail"},
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

// TestArchiveHasTheLedgerAndNotItsKeys: it can answer who had what, and
// neither sign events nor look pseudonyms up.
func TestArchiveHasTheLedgerAndNotItsKeys(t *testing.T) {
	tree := board.Server(t)
	dir := tree.Path(ledger.DefaultDir)
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
	if _, _, err := execute(t, "collect", "--root", tree.Root(), "--file", file); err != nil {
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
		if data, _ := os.ReadFile(filepath.Join(a.FS.Path(), ledger.DefaultDir, name)); len(data) > 0 {
			t.Errorf("the archive has the ledger's %s", name)
		}
	}
}

// TestDaemonsAreCopied: what a daemon's command line says is in the copy, though it
// has no device.
func TestDaemonsAreCopied(t *testing.T) {
	tree := board.Server(t)
	tree.Start(board.Process{Comm: "kubelet", Arguments: []string{"/usr/bin/kubelet", "--anonymous-auth=true"}})
	tree.Start(board.Process{Comm: "cron", Arguments: []string{"/usr/sbin/cron", "hunter2"}})
	file := filepath.Join(t.TempDir(), "node.tgz")
	if _, _, err := execute(t, "collect", "--root", tree.Root(), "--file", file); err != nil {
		t.Fatal(err)
	}
	for _, command := range [][]string{{"node", "--root", tree.Root()}, {"eval", file}} {
		stdout, _, _ := execute(t, append(command, "-o", "csv")...)
		if !strings.Contains(stdout, "RT-028,Ensure that the kubelet authenticates and authorizes all requests,fail,") || strings.Contains(stdout, "hunter2") {
			t.Errorf("%s does not say that the kubelet answers everybody:\n%s", command[0], stdout)
		}
	}
	a, err := archive.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = a.Close() }()
	if lines, _ := filepath.Glob(filepath.Join(a.FS.Path(), "proc/*/cmdline")); len(lines) == 0 {
		t.Error("no command line is in the archive")
	}
	err = filepath.WalkDir(filepath.Join(a.FS.Path(), "proc"), func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(name)
		for _, word := range []string{"cron", "hunter2"} {
			if bytes.Contains(data, []byte(word)) {
				t.Errorf("the archive has %s in %s", word, name)
			}
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// longLedger writes a ledger of some segments and a megabyte and a half; the names of
// claims and UIDs count up.
func longLedger(t *testing.T, tree *board.Tree) (claims int) {
	t.Helper()
	return fill(t, tree, newLedger(t, tree, 0))
}

// newLedger begins a ledger of small segments, of which so many bytes are kept; 0 is all.
func newLedger(t *testing.T, tree *board.Tree, retain int64) *writer.Writer {
	t.Helper()
	tree.Delete(ledger.DefaultDir)
	w, err := writer.Open(t.Context(), writer.Config{Dir: tree.Path(ledger.DefaultDir), Node: "n1", BootID: "b", SegmentBytes: 200 << 10, RetainBytes: retain})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// fill writes the claims of longLedger.
func fill(t *testing.T, tree *board.Tree, w *writer.Writer) (claims int) {
	t.Helper()
	why := strings.Repeat("the reset of 0000:3b:00.0 is not proven. ", 100)
	for i := range 350 {
		claim := &ledger.Claim{UID: fmt.Sprintf("uid-%d", i), Namespace: "team-a", Name: fmt.Sprintf("c%d", i)}
		gpu := []ledger.Device{{Address: tree.Devices["gpu0"]}}
		if _, err := w.Append(t.Context(),
			ledger.Event{Type: ledger.Prepare, Result: ledger.OK, Claim: claim, Devices: gpu},
			ledger.Event{Type: ledger.Unprepare, Result: ledger.OK, Claim: claim, Devices: gpu, Reason: why},
		); err != nil {
			t.Fatal(err)
		}
	}
	return 350
}

// TestLargeLedgerIsCopiedFromItsEnd: what is left out is said, all of it verifies
// by hashes, and a change in what is left out is found.
func TestLargeLedgerIsCopiedFromItsEnd(t *testing.T) {
	tree := board.Server(t)
	claims := longLedger(t, tree)
	file := filepath.Join(t.TempDir(), "node.tgz")
	collect := func(limit string) (said string) {
		t.Helper()
		_, said, err := execute(t, "collect", "--root", tree.Root(), "--file", file, "--ledger", limit)
		if err != nil {
			t.Fatal(err)
		}
		return said
	}
	const leftOut = "the archive leaves out the oldest "
	if said := collect("256"); strings.Contains(said, leftOut) {
		t.Errorf("a ledger that fits is cut: %s", said)
	}
	whole, _, err := execute(t, "ledger", "verify", "--root", file)
	if err != nil || !strings.Contains(whole, "700 proven, 0 of them") {
		t.Errorf("%v: %s", err, whole)
	}
	if said := collect("1"); !strings.Contains(said, leftOut) {
		t.Errorf("nothing is said of what is left out: %s", said)
	}
	verified, said, err := execute(t, "ledger", "verify", "--root", file)
	if err != nil || !strings.Contains(verified, "700 proven, ") || strings.Contains(verified, " 0 of them") || !strings.Contains(said, leftOut) {
		t.Errorf("%v: %s%s", err, verified, said)
	}
	last := fmt.Sprintf("uid-%d", claims-1)
	for uid, want := range map[string]string{last: "1 tenancy on node n1", "uid-0": "the ledger knows of no function"} {
		answer, _, err := execute(t, "claim", uid, "--root", file)
		if err != nil || !strings.Contains(answer, want) || !strings.Contains(answer, leftOut) {
			t.Errorf("%s: %v: %s", uid, err, answer)
		}
	}
	if _, _, err := execute(t, "ledger", "prove", "699", "--root", file); err != nil {
		t.Errorf("an event that is there can't be proven: %v", err)
	}
	report, said, err := execute(t, "eval", file, "-o", "json")
	if err != nil && exitCode(err) != exitFindings || !strings.Contains(report, `"leftOut": "`+leftOut) || !strings.Contains(said, leftOut) {
		t.Errorf("eval does not say what is left out: %v, %s", err, said)
	}
	first := filepath.Join(tree.Path(ledger.DefaultDir), ledger.SegmentName(0))
	data, err := os.ReadFile(first)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(first, bytes.Replace(data, []byte("uid-7\""), []byte("uid-8\""), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	collect("1")
	if _, _, err := execute(t, "ledger", "verify", "--root", file); err == nil || exitCode(err) != exitLedger {
		t.Errorf("an event that is left out was changed, and the copy verifies: %v", err)
	}
}

// TestArchiveHasWhatStaysOfDroppedSegments: a namespace used more than its share of the ledger, and the others' events stay.
func TestArchiveHasWhatStaysOfDroppedSegments(t *testing.T) {
	tree := board.Server(t)
	w := newLedger(t, tree, 600<<10)
	quiet := &ledger.Claim{UID: "uid-quiet", Namespace: "team-b", Name: "quiet"}
	event := ledger.Event{Type: ledger.Prepare, Result: ledger.OK, Claim: quiet, Devices: []ledger.Device{{Address: tree.Devices["gpu0"]}}}
	if _, err := w.Append(t.Context(), event); err != nil {
		t.Fatal(err)
	}
	fill(t, tree, w)
	file := filepath.Join(t.TempDir(), "node.tgz")
	if _, _, err := execute(t, "collect", "--root", tree.Root(), "--file", file, "--ledger", "256"); err != nil {
		t.Fatal(err)
	}
	for _, root := range []string{tree.Root(), file} {
		verified, _, err := execute(t, "ledger", "verify", "--root", root)
		if err != nil || strings.Contains(verified, " 0 of them") {
			t.Errorf("%s: %v: %s", root, err, verified)
		}
		for uid, want := range map[string]string{"uid-quiet": "1 tenancy on node n1", "uid-0": "the ledger knows of no function"} {
			answer, _, err := execute(t, "claim", uid, "--root", root)
			if err != nil || !strings.Contains(answer, want) || !strings.Contains(answer, "the answer is complete from") {
				t.Errorf("%s: %s: %v: %s", root, uid, err, answer)
			}
		}
		if _, _, err := execute(t, "ledger", "prove", "0", "--root", root); err != nil {
			t.Errorf("%s: an event that stays can't be proven: %v", root, err)
		}
	}
}

// TestLedgerThatIsLeftOutIsNotAbsent: if not even hashes fit, the answer says
// so, and not that the node has none.
func TestLedgerThatIsLeftOutIsNotAbsent(t *testing.T) {
	tree := board.Server(t)
	longLedger(t, tree)
	file := filepath.Join(t.TempDir(), "node.tgz")
	if _, _, err := execute(t, "collect", "--root", tree.Root(), "--file", file, "--ledger", "0"); err != nil {
		t.Fatal(err)
	}
	const want = "the archive has nothing of the node's ledger: "
	if _, _, err := execute(t, "ledger", "verify", "--root", file); err == nil || exitCode(err) != exitFailed || !strings.Contains(err.Error(), want) {
		t.Errorf("verify: %v", err)
	}
	page, _, err := execute(t, "eval", file, "-o", "html")
	if err != nil && exitCode(err) != exitFindings || !strings.Contains(page, "The past is unknown: the archive has nothing of the node&#39;s ledger") {
		t.Errorf("the page does not say it: %v", err)
	}
	// A segment that is none can't be read, and what is left would not be the ledger.
	if err := os.Remove(filepath.Join(tree.Path(ledger.DefaultDir), ledger.SegmentName(0))); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(tree.Path(ledger.DefaultDir), ledger.SegmentName(0)), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, said, err := execute(t, "collect", "--root", tree.Root(), "--file", file); err != nil || !strings.Contains(said, want+ledger.SegmentName(0)+" could not be read") {
		t.Errorf("a segment that can't be read: %v, %s", err, said)
	}
}

// TestPageTellsThePast by the ledger, of the node as of its archive; without one
// it says why not.
func TestPageTellsThePast(t *testing.T) {
	tree := board.Server(t)
	tree.Delete(ledger.DefaultDir)
	page := func(args ...string) string {
		t.Helper()
		text, _, err := execute(t, append(args, "-o", "html")...)
		if err != nil && exitCode(err) != exitFindings && exitCode(err) != exitLedger {
			t.Fatal(err)
		}
		return text
	}
	if text := page("node", "--root", tree.Root()); !strings.Contains(text, "so there must be a ledger: it was deleted") {
		t.Error("of a ledger that was deleted the page does not say so")
	}
	worked := filepath.Join(t.TempDir(), "journal")
	if err := os.Rename(tree.Path(journal.DefaultDir), worked); err != nil {
		t.Fatal(err)
	}
	if text := page("node", "--root", tree.Root()); !strings.Contains(text, "The past is unknown: there is no ledger in ") {
		t.Error("without a ledger the page does not say so")
	}
	if err := os.Rename(worked, tree.Path(journal.DefaultDir)); err != nil {
		t.Fatal(err)
	}
	longLedger(t, tree)
	file := filepath.Join(t.TempDir(), "node.tgz")
	if _, _, err := execute(t, "collect", "--root", tree.Root(), "--file", file); err != nil {
		t.Fatal(err)
	}
	for what, text := range map[string]string{"node": page("node", "--root", tree.Root()), "archive": page("eval", file)} {
		for _, want := range []string{"The ledger verifies: chain, tree and signatures of its 700 events", "team-a/c349", "and 340 more: <code>kata-vfio-audit who --device "} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: the page lacks %q", what, want)
			}
		}
	}
	if text := page("node", "--root", tree.Root()); len(text) > 4<<20 {
		t.Errorf("the page has %d bytes", len(text))
	}
	if err := os.Remove(filepath.Join(tree.Path(ledger.DefaultDir), ledger.SegmentName(0))); err != nil {
		t.Fatal(err)
	}
	if text := page("node", "--root", tree.Root()); !strings.Contains(text, "The node’s ledger does not verify") {
		t.Error("the page does not say that the ledger does not verify")
	}
}

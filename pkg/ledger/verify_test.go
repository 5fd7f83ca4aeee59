package ledger_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/ledger/writer"
)

// history is a small ledger with all there can be: dropped segments, closed ones
// and an open one, writes of one event and of two. Copies are what backups of
// its directory were, and anchors what went off the node, after each write.
type history struct {
	dir     string
	files   map[string]string
	copies  []map[string]string
	anchors []string
}

func newHistory(t testing.TB) *history {
	t.Helper()
	h := &history{dir: filepath.Join(t.TempDir(), "ledger")}
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	c := writer.Config{
		Dir: h.dir, Node: "node-1", BootID: "boot-1", SegmentBytes: 1300, Retain: 24 * time.Hour,
		Now: func() (time.Time, int64) { return at, at.UnixNano() },
	}
	w, err := writer.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 8 {
		if i == 4 {
			at = at.Add(30 * time.Hour)
		}
		events := []ledger.Event{event(fmt.Sprintf("event-%d", i))}
		if i%2 == 1 {
			events = append(events, event(fmt.Sprintf("event-%d-b", i)))
		}
		signed, err := w.Append(t.Context(), events...)
		if err != nil {
			t.Fatal(err)
		}
		h.anchors = append(h.anchors, signed)
		h.copies = append(h.copies, readFiles(t, h.dir))
	}
	h.files = h.copies[len(h.copies)-1]
	return h
}

func event(reason string) ledger.Event {
	return ledger.Event{Type: ledger.Prepare, Result: ledger.OK, Reason: reason}
}

// readFiles returns the files of a ledger that readers need.
func readFiles(t testing.TB, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, e := range entries {
		if e.Name() == ledger.PrivateKeyFile || e.Name() == "append.lock" {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		files[e.Name()] = string(data)
	}
	return files
}

// with returns a ledger's file system in which one file has other data; empty
// data removes it.
func with(files map[string]string, name, data string) fstest.MapFS {
	fsys := fstest.MapFS{}
	for n, d := range files {
		fsys[n] = &fstest.MapFile{Data: []byte(d)}
	}
	switch {
	case data != "":
		fsys[name] = &fstest.MapFile{Data: []byte(data)}
	case name != "":
		delete(fsys, name)
	}
	return fsys
}

// found returns the kinds of problems, with an error as one too.
func found(t *testing.T, fsys fs.FS, o ledger.Options) (*ledger.Report, []ledger.Kind) {
	t.Helper()
	r, err := ledger.Verify(fsys, o)
	if err != nil {
		if !errors.Is(err, ledger.ErrNoKey) {
			t.Errorf("verify: %v", err)
		}
		return &ledger.Report{}, []ledger.Kind{"NoKey"}
	}
	var kinds []ledger.Kind
	for _, p := range r.Problems {
		if p.What == "" || p.Seq < -1 {
			t.Errorf("problem %+v", p)
		}
		kinds = append(kinds, p.Kind)
	}
	return r, kinds
}

func anchored(texts ...string) ledger.Options {
	return ledger.Options{Anchors: ledger.FindCheckpoints([]byte(strings.Join(texts, "\n")))}
}

// TestMain keeps ledgers in memory, where the machine has a file system there.
func TestMain(m *testing.M) {
	const memory = "/dev/shm"
	if _, err := os.Stat(memory); err == nil && os.Getenv("TMPDIR") == "" {
		_ = os.Setenv("TMPDIR", memory)
	}
	os.Exit(m.Run())
}

func TestWholeLedgerIsSound(t *testing.T) {
	h := newHistory(t)
	r, kinds := found(t, with(h.files, "", ""), anchored(h.anchors...))
	if kinds != nil || r.Size != 14 || r.Anchored != 14 || r.Anchors != 8 || r.Dropped == 0 || r.Segments < 3 {
		t.Errorf("%v, %+v", kinds, r)
	}
}

// The captured ledger keeps the form on disk as it is: what was written once is
// read for ever.
func TestLedgerThatWasWrittenOnceIsReadForEver(t *testing.T) {
	anchors, err := os.ReadFile("testdata/anchors")
	if err != nil {
		t.Fatal(err)
	}
	r, kinds := found(t, os.DirFS("testdata/ledger"), anchored(string(anchors)))
	if kinds != nil || r.Size != 14 || r.Anchors != 2 || r.Anchored == 0 || r.Dropped == 0 {
		t.Errorf("%v, %+v", kinds, r)
	}
}

func TestVerifyFindsEachChangedByte(t *testing.T) {
	h := newHistory(t)
	bytes := 0
	for name, data := range h.files {
		for i := range len(data) {
			changed := []byte(data)
			by := data[i] ^ 1
			if i%5 == 0 && data[i] != '\n' {
				by = '\n'
			}
			changed[i] = by
			if _, kinds := found(t, with(h.files, name, string(changed)), ledger.Options{}); kinds == nil {
				t.Errorf("byte %d of %s, %q for %q: not found", i, name, by, data[i])
			}
			bytes++
		}
	}
	t.Logf("%d bytes changed", bytes)
}

func TestVerifyFindsEachRemovedRepeatedOrMovedLine(t *testing.T) {
	h := newHistory(t)
	for name, data := range h.files {
		if !ledger.IsSegment(name) {
			continue
		}
		lines := strings.SplitAfter(strings.TrimSuffix(data, "\n"), "\n")
		lines[len(lines)-1] += "\n"
		for i := range lines {
			without := slices.Delete(slices.Clone(lines), i, i+1)
			twice := slices.Insert(slices.Clone(lines), i, lines[i])
			for what, changed := range map[string][]string{"taken out": without, "repeated": twice, "swapped": swapped(lines, i)} {
				text := strings.Join(changed, "")
				if text == data || text == "" {
					continue
				}
				_, kinds := found(t, with(h.files, name, text), anchored(h.anchors...))
				if kinds == nil {
					t.Errorf("line %d of %s %s: not found", i+1, name, what)
				}
			}
		}
	}
}

func swapped(lines []string, i int) []string {
	other := slices.Clone(lines)
	if i+1 < len(other) {
		other[i], other[i+1] = other[i+1], other[i]
	}
	return other
}

func TestVerifyFindsEachRemovedFile(t *testing.T) {
	h := newHistory(t)
	for name := range h.files {
		_, kinds := found(t, with(h.files, name, ""), anchored(h.anchors...))
		if kinds == nil {
			t.Errorf("%s removed: not found", name)
		}
	}
}

// TestLedgerThatIsGoneIsFoundByWhatKnowsOfIt, whatever that is. Where nothing does, there never was one.
func TestLedgerThatIsGoneIsFoundByWhatKnowsOfIt(t *testing.T) {
	h := newHistory(t)
	key := h.files[ledger.PublicKeyFile]
	nothing, keyAlone := fstest.MapFS{}, fstest.MapFS{ledger.PublicKeyFile: {Data: []byte(key)}}
	latest, others := anchored(h.anchors[7]), anchored(strings.ReplaceAll(h.anchors[7], "node-1", "node-2"))
	known := latest
	known.Key = strings.TrimSpace(key)
	for name, test := range map[string]struct {
		fsys fs.FS
		o    ledger.Options
		want []ledger.Kind
	}{
		"the key is left":                      {keyAlone, ledger.Options{}, []ledger.Kind{ledger.Missing}},
		"the key is left, and an anchor":       {keyAlone, latest, []ledger.Kind{ledger.Missing, ledger.Truncated}},
		"the key is left, and another's":       {keyAlone, others, []ledger.Kind{ledger.Missing, ledger.NoAnchor}},
		"a key that is none is left":           {fstest.MapFS{ledger.PublicKeyFile: {Data: []byte("x")}}, ledger.Options{}, []ledger.Kind{ledger.Missing}},
		"the key of pseudonyms is left":        {fstest.MapFS{ledger.PseudonymsFile: {Data: []byte("x")}}, ledger.Options{}, []ledger.Kind{ledger.Missing}},
		"nothing is left but an anchor":        {nothing, latest, []ledger.Kind{ledger.Truncated}},
		"nothing is left but anchor and key":   {nothing, known, []ledger.Kind{ledger.Truncated}},
		"nothing is left, and a witness knows": {nothing, ledger.Options{Witness: "the journal is there"}, []ledger.Kind{ledger.Missing}},
	} {
		r, kinds := found(t, test.fsys, test.o)
		if diff := cmp.Diff(test.want, kinds); diff != "" || r.OK() || r.Size != 0 {
			t.Errorf("%s (-want +got):\n%s%+v", name, diff, r)
		}
	}
	for what, fsys := range map[string]fs.FS{"empty": nothing, "of others": fstest.MapFS{"lost+found/x": {}}, "none": os.DirFS(filepath.Join(t.TempDir(), "none"))} {
		if _, err := ledger.Verify(fsys, ledger.Options{}); !errors.Is(err, ledger.ErrNone) {
			t.Errorf("a directory that is %s: %v", what, err)
		}
	}
}

func TestFilesThatChangePlacesAreFound(t *testing.T) {
	h := newHistory(t)
	for a := range h.files {
		for b := range h.files {
			if a == b || h.files[a] == h.files[b] {
				continue
			}
			fsys := with(h.files, a, h.files[b])
			fsys[b] = &fstest.MapFile{Data: []byte(h.files[a])}
			if _, kinds := found(t, fsys, ledger.Options{}); kinds == nil {
				t.Errorf("%s and %s changed places: not found", a, b)
			}
		}
	}
}

// TestVerifyFindsEachTruncation cuts the newest segment at every length. What is
// whole in itself is what the ledger was once, which only an anchor tells.
func TestVerifyFindsEachTruncation(t *testing.T) {
	h := newHistory(t)
	name := newest(h.files)
	latest := anchored(h.anchors[len(h.anchors)-1])
	whole := 0
	for n := 1; n < len(h.files[name]); n++ {
		fsys := with(h.files, name, h.files[name][:n])
		if _, kinds := found(t, fsys, latest); !slices.Contains(kinds, ledger.Truncated) {
			t.Errorf("cut at %d, with an anchor: %v", n, kinds)
		}
		r, kinds := found(t, fsys, ledger.Options{})
		if kinds != nil {
			continue
		}
		whole++
		if !slices.ContainsFunc(h.anchors, func(a string) bool { return a == r.Signed }) && r.Signed != "" {
			t.Errorf("cut at %d is taken for a ledger that never was", n)
		}
	}
	if whole == 0 {
		t.Error("no cut is between two writes")
	}
}

func newest(files map[string]string) string {
	var segments []string
	for name := range files {
		if ledger.IsSegment(name) {
			segments = append(segments, name)
		}
	}
	return slices.Max(segments)
}

func TestOlderCopyThatIsPutBackIsFoundByLaterAnchors(t *testing.T) {
	h := newHistory(t)
	for i, older := range h.copies {
		for j, a := range h.anchors {
			r, kinds := found(t, with(older, "", ""), anchored(a))
			switch {
			case j > i && !slices.Equal(kinds, []ledger.Kind{ledger.Truncated}):
				t.Errorf("copy %d, anchor %d: %v", i, j, kinds)
			case j <= i && (kinds != nil || r.Anchored == 0):
				t.Errorf("copy %d, anchor %d: %v, %+v", i, j, kinds, r)
			}
		}
		if r, kinds := found(t, with(older, "", ""), ledger.Options{}); kinds != nil || r.Anchored != 0 {
			t.Errorf("copy %d alone: %v", i, kinds)
		}
	}
}

// rewrite writes a ledger again, as root on the node can, with one event
// left out. The key is the node's, or another one.
func rewrite(t *testing.T, h *history, sameKey bool) map[string]string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "ledger")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if sameKey {
		key, err := os.ReadFile(filepath.Join(h.dir, ledger.PrivateKeyFile))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, ledger.PrivateKeyFile), key, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w, err := writer.Open(t.Context(), writer.Config{Dir: dir, Node: "node-1", SegmentBytes: 1500})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		if i == 3 {
			continue
		}
		if _, err := w.Append(t.Context(), event(fmt.Sprintf("event-%d", i))); err != nil {
			t.Fatal(err)
		}
	}
	return readFiles(t, dir)
}

func TestLedgerThatIsWrittenAnewIsFoundByAnchorAndKey(t *testing.T) {
	h := newHistory(t)
	key := strings.TrimSpace(h.files[ledger.PublicKeyFile])
	same, other := with(rewrite(t, h, true), "", ""), with(rewrite(t, h, false), "", "")
	for name, test := range map[string]struct {
		fsys fs.FS
		o    ledger.Options
		want []ledger.Kind
	}{
		"by the node's key, nothing known":    {same, ledger.Options{}, nil},
		"by the node's key, the key known":    {same, ledger.Options{Key: key}, nil},
		"by the node's key, an anchor known":  {same, anchored(h.anchors[4]), []ledger.Kind{ledger.Rewritten}},
		"by another key, nothing known":       {other, ledger.Options{}, nil},
		"by another key, an anchor known":     {other, anchored(h.anchors[4]), []ledger.Kind{ledger.ForeignKey}},
		"by another key, the key known":       {other, ledger.Options{Key: key}, []ledger.Kind{ledger.ForeignKey, ledger.Damaged}},
		"anchors of other ledgers alone":      {same, anchored(strings.ReplaceAll(h.anchors[0], "node-1", "node-2")), []ledger.Kind{ledger.NoAnchor}},
		"an anchor that somebody made up":     {same, anchored(strings.Replace(h.anchors[0], "\n1\n", "\n2\n", 1)), []ledger.Kind{ledger.ForeignKey}},
		"of other ledgers beside the node's":  {with(h.files, "", ""), anchored(h.anchors[0], strings.ReplaceAll(h.anchors[0], "node-1", "node-2")), nil},
		"the same anchor twice is one anchor": {with(h.files, "", ""), anchored(h.anchors[0], h.anchors[0]), nil},
	} {
		r, kinds := found(t, test.fsys, test.o)
		want := test.want
		if name == "by another key, the key known" && len(kinds) > 2 {
			kinds = slices.Compact(kinds)
		}
		if diff := cmp.Diff(want, kinds); diff != "" {
			t.Errorf("%s (-want +got):\n%s%+v", name, diff, r.Problems)
		}
	}
}

func TestProblemSaysWhereAndWhat(t *testing.T) {
	h := newHistory(t)
	name := newest(h.files)
	r, err := ledger.Verify(with(h.files, name, strings.Replace(h.files[name], `"reason":"event-7-b"`, `"reason":"event-9-b"`, 1)), ledger.Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := []ledger.Problem{{
		Kind: ledger.Damaged, File: name, Line: strings.Count(h.files[name], "\n"), Seq: 12,
		What: "these events are not the ones that were signed: one of the last 2 was changed",
	}}
	if diff := cmp.Diff(want, r.Problems); diff != "" || r.OK() {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Anchors come in whatever form they were kept.
func TestCheckpointsAreFoundWhereTheyAreKept(t *testing.T) {
	h := newHistory(t)
	inJSON, err := json.Marshal(map[string]any{"kind": "List", "items": []any{
		map[string]any{"status": map[string]any{"devices": []any{map[string]any{"data": map[string]any{"ledger": h.anchors[0]}}}}},
		map[string]any{"note": "gpu 0000:3b:00.0 bound; ledger " + ledger.OneLine(h.anchors[1])},
	}})
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("ledger: %q\n\nPrepared  vf bound; ledger %s\n", h.anchors[0], ledger.OneLine(h.anchors[1]))
	for what, data := range map[string]string{
		"notes": h.anchors[0] + "\n" + h.anchors[1], "JSON": string(inJSON), "JSON after JSON": string(inJSON) + "\n" + string(inJSON), "text": text,
		"indented": strings.ReplaceAll(h.anchors[0]+h.anchors[1], "\n", "\n      "),
	} {
		var got []string
		for _, a := range ledger.FindCheckpoints([]byte(data)) {
			got = append(got, a.Signed)
		}
		if diff := cmp.Diff(h.anchors[:2], got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
}

func TestProofsConvinceWhoHasNoLedger(t *testing.T) {
	h := newHistory(t)
	fsys, key := with(h.files, "", ""), strings.TrimSpace(h.files[ledger.PublicKeyFile])
	last := ledger.FindCheckpoints([]byte(h.anchors[len(h.anchors)-1]))[0]
	for e, err := range ledger.Events(fsys) {
		if err != nil {
			t.Fatal(err)
		}
		p, err := ledger.ProveEvent(fsys, e.Event.Seq)
		if err != nil {
			t.Fatal(err)
		}
		wantProof(t, p, key, last.Checkpoint)
	}
	for _, a := range ledger.FindCheckpoints([]byte(strings.Join(h.anchors, ""))) {
		p, err := ledger.ProveConsistency(fsys, a)
		if err != nil {
			t.Fatal(err)
		}
		wantProof(t, p, key, last.Checkpoint)
	}
}

// wantProof checks that a proof holds, and that nothing of it can be changed.
func wantProof(t *testing.T, p *ledger.Proof, key string, want ledger.Checkpoint) {
	t.Helper()
	data, err := p.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if p, err = ledger.DecodeProof(data); err != nil {
		t.Fatal(err)
	}
	if got, err := p.Check(key); err != nil || got != want {
		t.Errorf("proof: %+v, %v", got, err)
	}
	for i, change := range []func(*ledger.Proof){
		func(p *ledger.Proof) { p.Event = strings.Replace(p.Event, "event-", "event_", 1) },
		func(p *ledger.Proof) { p.Seq++ },
		func(p *ledger.Proof) { p.Earlier = strings.Replace(p.Earlier, "\n", "\n1", 1) },
		func(p *ledger.Proof) { p.Checkpoint = strings.Replace(p.Checkpoint, "\n1", "\n2", 1) },
		func(p *ledger.Proof) {
			for i := range p.Hashes {
				p.Hashes[i][0] ^= 1
			}
		},
	} {
		other := *p
		other.Hashes = slices.Clone(p.Hashes)
		change(&other)
		if _, err := other.Check(key); err == nil && !cmp.Equal(&other, p) && p.Event != "" {
			t.Errorf("proof of event %d with change %d holds", p.Seq, i)
		}
	}
}

func TestThereIsNoProofFromWhatIsDamaged(t *testing.T) {
	h := newHistory(t)
	name := newest(h.files)
	fsys := with(h.files, name, strings.Replace(h.files[name], "event-7-b", "event-9-b", 1))
	if p, err := ledger.ProveEvent(fsys, 14); err == nil {
		t.Errorf("%+v", p)
	}
	fsys = with(rewrite(t, h, true), "", "")
	if p, err := ledger.ProveConsistency(fsys, ledger.FindCheckpoints([]byte(h.anchors[5]))[0]); err == nil || !strings.Contains(err.Error(), "different histories") {
		t.Errorf("%+v, %v", p, err)
	}
}

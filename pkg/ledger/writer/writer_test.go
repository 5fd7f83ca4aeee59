package writer_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/ledger/writer"
)

// config is that of a ledger in a directory of the test's.
func config(t *testing.T) writer.Config {
	t.Helper()
	return writer.Config{
		Dir: filepath.Join(t.TempDir(), "ledger"), Node: "node-1", BootID: "boot-1",
		Actor: ledger.Actor{Component: "test", Version: "v0"},
	}
}

func open(t *testing.T, c writer.Config) *writer.Writer {
	t.Helper()
	w, err := writer.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func event(reason string) ledger.Event {
	return ledger.Event{Type: ledger.Prepare, Result: ledger.OK, Reason: reason, Claim: &ledger.Claim{UID: "u-1", Namespace: "tenant-a", Name: "claim-a"}}
}

func add(t *testing.T, w *writer.Writer, reasons ...string) {
	t.Helper()
	for _, r := range reasons {
		if _, err := w.Append(t.Context(), event(r)); err != nil {
			t.Fatal(err)
		}
	}
}

// reasons returns the reasons of a ledger's events, which tell them apart; of an
// event of the writer's own its type.
func reasons(t *testing.T, dir string) []string {
	t.Helper()
	var all []string
	for e, err := range ledger.Events(os.DirFS(dir)) {
		switch {
		case err != nil:
			t.Fatal(err)
		case e.Event.Type == ledger.Prepare:
			all = append(all, e.Event.Reason)
		default:
			all = append(all, string(e.Event.Type))
		}
	}
	return all
}

func wantReasons(t *testing.T, dir string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, reasons(t, dir)); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// verify verifies the ledger, which must be sound.
func verify(t *testing.T, dir string, anchors ...string) *ledger.Report {
	t.Helper()
	r, err := ledger.Verify(os.DirFS(dir), ledger.Options{Anchors: ledger.FindCheckpoints([]byte(strings.Join(anchors, "\n")))})
	if err != nil {
		t.Fatal(err)
	}
	if !r.OK() {
		t.Fatalf("%+v", r.Problems)
	}
	return r
}

func TestWriterAppendsVerifiedEvents(t *testing.T) {
	c := config(t)
	w := open(t, c)
	signed, err := w.Append(t.Context(), event("a"), event("b"))
	if err != nil {
		t.Fatal(err)
	}
	add(t, w, "c")
	wantReasons(t, c.Dir, "a", "b", "c")
	r := verify(t, c.Dir, signed, w.Checkpoint())
	if r.Size != 3 || r.Anchored != 3 || r.Anchors != 2 || r.Origin != "kata-vfio.dev/node-1" || r.Signed != w.Checkpoint() {
		t.Errorf("report %+v", r)
	}
}

// A checkpoint that leaves the node covers only what a power failure can't take back.
func TestCheckpointDoesNotCoverSoonEventsBeforeSync(t *testing.T) {
	c := config(t)
	c.SegmentBytes = 2000
	w := open(t, c)
	for round := range 8 { // over several segments
		before := w.Checkpoint()
		if err := w.AppendSoon(t.Context(), event("soon"), event("soon")); err != nil {
			t.Fatal(err)
		}
		if w.Checkpoint() != before {
			t.Fatalf("round %d: the checkpoint covers an event that may not be on disk", round)
		}
		if round%2 == 0 {
			if err := w.Sync(t.Context()); err != nil {
				t.Fatal(err)
			}
		} else {
			add(t, w, "later")
		}
		if w.Checkpoint() == before {
			t.Fatalf("round %d: the checkpoint does not cover events on disk", round)
		}
	}
	if err := w.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := verify(t, c.Dir, w.Checkpoint()); r.Size != 20 || r.Anchored != 20 || r.Segments < 2 {
		t.Errorf("report %+v", r)
	}
}

// Another instance may write and read between the two.
func TestOtherWriterCoversSoonEvents(t *testing.T) {
	c := config(t)
	first, second := open(t, c), open(t, c)
	if err := first.AppendSoon(t.Context(), event("soon")); err != nil {
		t.Fatal(err)
	}
	signed, err := second.Append(t.Context(), event("later"))
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantReasons(t, c.Dir, "soon", "later")
	if r := verify(t, c.Dir, signed, first.Checkpoint()); r.Anchored != 2 {
		t.Errorf("report %+v", r)
	}
}

func TestEventGetsWhatAllHave(t *testing.T) {
	c := config(t)
	c.Machine = writer.MachineHash("0123456789abcdef")
	at := time.Date(2026, 11, 21, 2, 11, 49, 5, time.UTC)
	c.Now = func() (time.Time, int64) { return at, 77 }
	w := open(t, c)
	add(t, w, "a")
	for e, err := range ledger.Events(os.DirFS(c.Dir)) {
		if err != nil {
			t.Fatal(err)
		}
		want := event("a")
		want.Version, want.Time, want.BootTime, want.BootID, want.Node, want.Actor = 1, at, 77, "boot-1", "node-1", c.Actor
		want.Machine = c.Machine
		if diff := cmp.Diff(&want, e.Event); diff != "" {
			t.Errorf("event (-want +got):\n%s", diff)
		}
	}
	if strings.Contains(c.Machine, "0123456789abcdef") || len(c.Machine) != 32 || writer.MachineHash("") != "" {
		t.Errorf("machine %q", c.Machine)
	}
}

func TestFilesAreForRootAlone(t *testing.T) {
	c := config(t)
	c.Pseudonyms = true
	add(t, open(t, c), "a")
	want := map[string]fs.FileMode{
		".": 0o700, "key": 0o600, "key.pub": 0o644, "pseudonyms.key": 0o600, "append.lock": 0o600, "0000000000000000.jsonl": 0o600,
	}
	got := map[string]fs.FileMode{}
	err := fs.WalkDir(os.DirFS(c.Dir), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		got[path] = info.Mode().Perm()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("modes (-want +got):\n%s", diff)
	}
}

func TestLedgerGoesOnInAnotherProcess(t *testing.T) {
	c := config(t)
	add(t, open(t, c), "a", "b")
	c.Node = "renamed"
	add(t, open(t, c), "c")
	wantReasons(t, c.Dir, "a", "b", "c")
	if r := verify(t, c.Dir); r.Origin != "kata-vfio.dev/node-1" || r.Size != 3 {
		t.Errorf("report %+v", r)
	}
}

// Two instances of a rolling update, each with several claims at work.
func TestTwoWritersTakeTurns(t *testing.T) {
	c := config(t)
	c.SegmentBytes = 4000
	writers := []*writer.Writer{open(t, c), open(t, c)}
	var wg sync.WaitGroup
	const each, claims = 10, 4
	anchors := make([]string, 2*claims)
	for i := range 2 * claims {
		wg.Go(func() {
			for n := range each {
				signed, err := writers[i%2].Append(t.Context(), event(fmt.Sprintf("%d-%d", i, n)), event("second"))
				if err != nil {
					t.Error(err)
				}
				anchors[i] = signed
			}
		})
	}
	wg.Wait()
	r := verify(t, c.Dir, anchors...)
	if r.Size != 2*claims*each*2 || r.Segments < 5 {
		t.Errorf("report %+v", r)
	}
	seen, all := map[string]bool{}, reasons(t, c.Dir)
	for i, reason := range all {
		if reason != "second" {
			seen[reason] = true
			if all[i+1] != "second" {
				t.Errorf("event %d was torn from the one given with it", i)
			}
		}
	}
	if len(seen) != 2*claims*each {
		t.Errorf("%d different events", len(seen))
	}
}

// Each append begins a segment, whose predecessor the other writer has open and unchanged.
func TestWriterFollowsAnothersSegments(t *testing.T) {
	c := config(t)
	c.SegmentBytes = 1
	a, b := open(t, c), open(t, c)
	var want, anchors []string
	for i := range 6 {
		w, reason := []*writer.Writer{a, b, b}[i%3], fmt.Sprint(i)
		if i%2 == 0 {
			signed, err := w.Append(t.Context(), event(reason))
			if err != nil {
				t.Fatal(err)
			}
			anchors = append(anchors, signed)
		} else if err := w.AppendSoon(t.Context(), event(reason)); err != nil {
			t.Fatal(err)
		}
		want = append(want, reason)
	}
	wantReasons(t, c.Dir, want...)
	if r := verify(t, c.Dir, anchors...); r.Segments != len(want) {
		t.Errorf("%d segments, want %d", r.Segments, len(want))
	}
}

// A ledger that was moved away gets no more events, and the writer does not continue the one in its place.
func TestLedgerThatWasMovedAwayIsRefused(t *testing.T) {
	c := config(t)
	w := open(t, c)
	add(t, w, "a")
	evidence := c.Dir + ".evidence"
	if err := os.Rename(c.Dir, evidence); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Append(t.Context(), event("b")); err == nil {
		t.Error("appended to a ledger that is elsewhere")
	}
	wantReasons(t, evidence, "a")
	c.Actor.Component = "next"
	add(t, open(t, c), "other")
	if _, err := w.Append(t.Context(), event("b")); err == nil {
		t.Error("continued another ledger")
	}
	wantReasons(t, c.Dir, "other")
}

// counted gets each write.
type counted func(writer.Write)

func (c counted) ObserveLedger(o writer.Write) { c(o) }

func TestAppendsThatComeTogetherAreOneWrite(t *testing.T) {
	c := config(t)
	var writes []int
	c.Metrics = counted(func(o writer.Write) { writes = append(writes, len(o.Types)) })
	synctest.Test(t, func(t *testing.T) {
		goOn := make(chan struct{})
		var once sync.Once
		c.Now = func() (time.Time, int64) {
			once.Do(func() { <-goOn })
			return time.Now(), 0
		}
		w := open(t, c)
		var wg sync.WaitGroup
		wg.Go(func() { add(t, w, "first") })
		synctest.Wait() // it is in the middle of its write
		for range 8 {
			wg.Go(func() { add(t, w, "later") })
		}
		synctest.Wait() // they wait for their turn
		close(goOn)
		wg.Wait()
	})
	if diff := cmp.Diff([]int{1, 8}, writes); diff != "" {
		t.Errorf("events of each write (-want +got):\n%s", diff)
	}
}

func TestCallerWhoseTimeIsOverGivesUp(t *testing.T) {
	c := config(t)
	blocked, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	c.Now = func() (time.Time, int64) {
		once.Do(func() { close(blocked); <-goOn })
		return time.Now(), 0
	}
	w := open(t, c)
	var wg sync.WaitGroup
	wg.Go(func() { add(t, w, "first") })
	<-blocked
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.Append(ctx, event("never")); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	close(goOn)
	wg.Wait()
	add(t, w, "last")
	wantReasons(t, c.Dir, "first", "last")
}

// A power cut in the middle of a write leaves any part of it.
func TestWriteThatIsCutAnywhereIsPutAside(t *testing.T) {
	c := config(t)
	w := open(t, c)
	add(t, w, "a", "b")
	before := read(t, c.Dir)
	if _, err := w.Append(t.Context(), event("c")); err != nil {
		t.Fatal(err)
	}
	after := read(t, c.Dir)
	name := ledger.SegmentName(0)
	for n := len(before[name]); n <= len(after[name]); n++ {
		for _, zeros := range []bool{false, true} {
			cut := []byte(after[name][:n])
			if zeros { // the disk has the file's length and not yet what is in it
				cut = append(cut, make([]byte, len(after[name])-n)...)
			}
			c.Dir = write(t, after, name, string(cut))
			w, err := writer.Open(t.Context(), c)
			if err != nil {
				t.Fatalf("cut at %d of %d: %v", n, len(after[name]), err)
			}
			add(t, w, "e")
			want := []string{"a", "b", "torn", "e"}
			switch {
			case n == len(after[name]):
				want = []string{"a", "b", "c", "e"}
			case n == len(before[name]) && !zeros:
				want = []string{"a", "b", "e"}
			}
			wantReasons(t, c.Dir, want...)
			verify(t, c.Dir)
			kept, _ := filepath.Glob(filepath.Join(c.Dir, "*.kept"))
			if told := want[2] == "torn"; told != (len(kept) == 1) {
				t.Errorf("cut at %d: kept %v", n, kept)
			}
		}
	}
}

// A torn write is reported even if a crash interrupts its move to its place.
func TestTornWriteIsToldOfAfterAnotherCrash(t *testing.T) {
	c := config(t)
	add(t, open(t, c), "a")
	torn := filepath.Join(c.Dir, "0000000000000000-999.torn")
	if err := os.WriteFile(torn, []byte("half a line"), 0o600); err != nil {
		t.Fatal(err)
	}
	open(t, c)
	open(t, c)
	wantReasons(t, c.Dir, "a", "torn")
	if _, err := os.Stat(strings.TrimSuffix(torn, ".torn") + ".kept"); err != nil {
		t.Error(err)
	}
}

// TestTornRecordOfATornWrite: a crash during the event of a torn write leaves another one at the same place, and both are kept.
func TestTornRecordOfATornWrite(t *testing.T) {
	c := config(t)
	add(t, open(t, c), "a")
	segment := filepath.Join(c.Dir, ledger.SegmentName(0))
	whole, err := os.ReadFile(segment)
	if err != nil {
		t.Fatal(err)
	}
	const first, second = "half a line", "half an event"
	name := filepath.Join(c.Dir, fmt.Sprintf("%016d-%d", 0, len(whole)))
	if err := os.WriteFile(name+".torn", []byte(first), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(segment, append(whole, second...), 0o600); err != nil {
		t.Fatal(err)
	}
	open(t, c)
	wantReasons(t, c.Dir, "a", "torn", "torn")
	for kept, want := range map[string]string{name + ".kept": first, name + "-1.kept": second} {
		if data, err := os.ReadFile(kept); err != nil || string(data) != want {
			t.Errorf("%s has %q, %v; want %q", filepath.Base(kept), data, err, want)
		}
	}
}

func TestWriterRefusesDamageOtherThanTornEnd(t *testing.T) {
	c := config(t)
	w := open(t, c)
	add(t, w, "a", "b", "c")
	files := read(t, c.Dir)
	name := ledger.SegmentName(0)
	lines := strings.SplitAfter(files[name], "\n")
	for what, data := range map[string]string{
		"a changed event":                      strings.Replace(files[name], `"reason":"b"`, `"reason":"B"`, 1),
		"a zero in an early event":             strings.Replace(files[name], `"reason":"a"`, "\"reason\":\"\x00\"", 1),
		"an event taken out":                   strings.Join(append(append([]string{}, lines[:3]...), lines[4:]...), ""),
		"a line of somebody else's at the end": files[name] + "{}\n",
		"no header":                            strings.Join(lines[1:], ""),
		"nothing":                              "",
	} {
		c.Dir = write(t, files, name, data)
		_, err := writer.Open(t.Context(), c)
		if _, damaged := errors.AsType[*ledger.DamagedError](err); !damaged || !strings.Contains(err.Error(), "move it away") {
			t.Errorf("%s: %v", what, err)
		}
		if got := read(t, c.Dir)[name]; got != data {
			t.Errorf("%s: the evidence was changed", what)
		}
	}
}

// A process that runs is an anchor itself.
func TestLedgerThatGotShorterWhileItIsOpenIsRefused(t *testing.T) {
	c := config(t)
	w := open(t, c)
	add(t, w, "a", "b")
	older := read(t, c.Dir)
	add(t, w, "c")
	name := ledger.SegmentName(0)
	if err := os.WriteFile(filepath.Join(c.Dir, name), []byte(older[name]), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Append(t.Context(), event("d")); err == nil || !strings.Contains(err.Error(), "cut off") {
		t.Errorf("got %v", err)
	}
	if err := os.Remove(filepath.Join(c.Dir, name)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Append(t.Context(), event("d")); err == nil || !strings.Contains(err.Error(), "missing") {
		t.Errorf("got %v", err)
	}
}

func TestLostOrForeignKeyIsRefused(t *testing.T) {
	c := config(t)
	add(t, open(t, c), "a")
	files := read(t, c.Dir)
	c2 := config(t)
	add(t, open(t, c2), "other")
	other := read(t, c2.Dir)
	for name, data := range map[string]string{
		"key": other["key"], "key.pub": other["key.pub"], "pseudonyms.key": "x",
	} {
		c.Dir, c.Pseudonyms = write(t, files, name, data), true
		if _, err := writer.Open(t.Context(), c); err == nil {
			t.Errorf("%s of another ledger is taken", name)
		}
	}
	c.Dir = write(t, files, "", "")
	if err := os.Remove(filepath.Join(c.Dir, "key")); err != nil {
		t.Fatal(err)
	}
	if _, err := writer.Open(t.Context(), c); err == nil || !strings.Contains(err.Error(), "can't be continued") {
		t.Errorf("got %v", err)
	}
	c.Dir = write(t, files, "", "")
	if err := os.Remove(filepath.Join(c.Dir, "key.pub")); err != nil {
		t.Fatal(err)
	}
	add(t, open(t, c), "b")
	verify(t, c.Dir)
}

// A disk that is full in the middle of a write leaves nothing of it, and the
// next one succeeds once there is room.
func TestFullDiskLeavesNothingHalfDone(t *testing.T) {
	c := config(t)
	add(t, open(t, c), "a")
	size := len(read(t, c.Dir)[ledger.SegmentName(0)])
	for _, room := range []int{0, 1, 700} {
		out, err := child(t, limitVariable+"="+strconv.Itoa(size+room), dirVariable+"="+c.Dir)
		if err != nil || !strings.Contains(out, "file too large") {
			t.Errorf("room for %d bytes: %v, %s", room, err, out)
		}
		if got := len(read(t, c.Dir)[ledger.SegmentName(0)]); got != size {
			t.Fatalf("%d bytes are left of it", got-size)
		}
	}
	add(t, open(t, c), "c")
	wantReasons(t, c.Dir, "a", "c")
	verify(t, c.Dir)
}

// Variables of a child process that appends where files can't grow beyond a size.
const (
	limitVariable = "KATA_VFIO_TEST_LIMIT"
	dirVariable   = "KATA_VFIO_TEST_DIR"
)

// child runs this test's program as one.
func child(t *testing.T, env ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestMain keeps ledgers in memory, where the machine has a file system there:
// thousands of them are written.
func TestMain(m *testing.M) {
	if limit, err := strconv.ParseUint(os.Getenv(limitVariable), 10, 64); err == nil {
		fmt.Println(appendLimited(os.Getenv(dirVariable), limit))
		os.Exit(0)
	}
	const memory = "/dev/shm"
	if _, err := os.Stat(memory); err == nil && os.Getenv("TMPDIR") == "" {
		_ = os.Setenv("TMPDIR", memory)
	}
	os.Exit(m.Run())
}

// appendLimited appends, and again, where files can't grow beyond a size.
func appendLimited(dir string, limit uint64) error {
	w, err := writer.Open(context.Background(), writer.Config{Dir: dir, Node: "node-1"})
	if err != nil {
		return err
	}
	signal.Ignore(syscall.SIGXFSZ)
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: limit, Max: limit}); err != nil {
		return err
	}
	_, err = w.Append(context.Background(), event(strings.Repeat("b", 400)))
	_, again := w.Append(context.Background(), event(strings.Repeat("b", 400)))
	if err == nil || again == nil {
		return errors.New("it succeeded")
	}
	return err
}

func TestSegmentThatIsFullIsFollowedByTheNext(t *testing.T) {
	c := config(t)
	c.SegmentBytes = 1 // each holds one write
	w := open(t, c)
	add(t, w, "a", "b", "c")
	add(t, open(t, c), "d")
	wantReasons(t, c.Dir, "a", "b", "c", "d")
	if r := verify(t, c.Dir); r.Segments != 4 {
		t.Errorf("report %+v", r)
	}
}

func TestOldSegmentsAreDroppedAndTheRestIsProven(t *testing.T) {
	c := config(t)
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	c.Now = func() (time.Time, int64) { return at, at.UnixNano() }
	c.SegmentBytes, c.Retain = 1, 24*time.Hour
	w := open(t, c)
	signed, err := w.Append(t.Context(), event("a"))
	if err != nil {
		t.Fatal(err)
	}
	add(t, w, "b")
	at = at.Add(30 * time.Hour)
	add(t, w, "c")
	wantReasons(t, c.Dir, "retention", "retention", "c")
	r := verify(t, c.Dir, signed)
	if r.Dropped != 2 || r.Size != 5 || r.Anchored != 1 {
		t.Errorf("report %+v", r)
	}
	if _, err := ledger.ProveEvent(os.DirFS(c.Dir), 4); err != nil {
		t.Error(err)
	}
	if _, err := ledger.ProveEvent(os.DirFS(c.Dir), 1); err == nil || !strings.Contains(err.Error(), "dropped") {
		t.Errorf("proof of a dropped event: %v", err)
	}
	if _, err := ledger.ProveConsistency(os.DirFS(c.Dir), ledger.FindCheckpoints([]byte(signed))[0]); err != nil {
		t.Error(err)
	}
}

// A ledger that has grown to its limit drops its oldest segments, tells of it, and
// can be proven as before.
func TestRetentionBySize(t *testing.T) {
	c := config(t)
	c.SegmentBytes, c.RetainBytes = 2000, 6000
	w := open(t, c)
	signed, err := w.Append(t.Context(), event("first"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		add(t, w, fmt.Sprint(i))
	}
	var total int64
	for name, data := range read(t, c.Dir) {
		if ledger.IsSegment(name) {
			total += int64(len(data))
		}
	}
	if most := c.RetainBytes + 2*(c.SegmentBytes+1000); total > most {
		t.Errorf("the segments have %d bytes, want at most %d", total, most)
	}
	if r := verify(t, c.Dir, signed); r.Dropped == 0 || r.Anchored != 1 {
		t.Errorf("report %+v, want it to have dropped events and to fit the first anchor", r)
	}
	var told string
	for e, err := range ledger.Events(os.DirFS(c.Dir)) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Event.Type == ledger.Retention {
			told = e.Event.Reason
		}
	}
	if !strings.Contains(told, "the limit is 6000") {
		t.Errorf("the last retention says %q", told)
	}
}

// A crash between the hashes and the removal of their segment leaves both.
func TestDropThatWasCutOffIsMadeAgain(t *testing.T) {
	c := config(t)
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	c.Now = func() (time.Time, int64) { return at, at.UnixNano() }
	c.SegmentBytes, c.Retain = 1, 24*time.Hour
	add(t, open(t, c), "a", "b")
	before := read(t, c.Dir)
	at = at.Add(30 * time.Hour)
	open(t, c)
	name := ledger.SegmentName(0)
	if err := os.WriteFile(filepath.Join(c.Dir, name), []byte(before[name]), 0o600); err != nil {
		t.Fatal(err)
	}
	verify(t, c.Dir)
	open(t, c)
	if r := verify(t, c.Dir); r.Dropped != 1 {
		t.Errorf("report %+v", r)
	}
}

func TestDamagedSegmentIsKept(t *testing.T) {
	c := config(t)
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	c.Now = func() (time.Time, int64) { return at, at.UnixNano() }
	c.SegmentBytes, c.Retain = 1, 24*time.Hour
	add(t, open(t, c), "a", "b", "c")
	name := ledger.SegmentName(0)
	c.Dir = write(t, read(t, c.Dir), name, strings.Replace(read(t, c.Dir)[name], `"a"`, `"x"`, 1))
	at = at.Add(30 * time.Hour)
	open(t, c)
	wantReasons(t, c.Dir, "x", "b", "c")
}

func TestNamesOfTenantsAreHidden(t *testing.T) {
	c := config(t)
	c.Pseudonyms = true
	w := open(t, c)
	e := event("claim tenant-a/claim-a (u-1) of pod-a is refused: tenant-b/claim-b (u-2) has it")
	e.Pods = []ledger.Pod{{UID: "p-1", Name: "pod-a"}}
	if _, err := w.Append(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	data := read(t, c.Dir)[ledger.SegmentName(0)]
	for _, name := range []string{"tenant-a", "tenant-b", "claim-a", "claim-b", "pod-a"} {
		if strings.Contains(data, name) {
			t.Errorf("%s is in the ledger:\n%s", name, data)
		}
	}
	names, err := ledger.ReadPseudonyms(os.DirFS(c.Dir))
	if err != nil {
		t.Fatal(err)
	}
	for e := range ledger.Events(os.DirFS(c.Dir)) {
		for claim, want := range map[string]bool{"tenant-a/claim-a": true, "u-1": true, "claim-a": true, "claim-b": false, "tenant-b/claim-a": false} {
			f := ledger.Filter{Claim: claim, Names: names}
			if f.Match(e.Event) != want {
				t.Errorf("claim %s: found is %t", claim, !want)
			}
		}
	}
}

// TestNameOfSanitizedTenantIsHidden checks that the event of a stage does not name the tenant before it.
func TestNameOfSanitizedTenantIsHidden(t *testing.T) {
	c := config(t)
	c.Pseudonyms = true
	after := ledger.Claim{UID: "u-1", Namespace: "tenant-a", Name: "claim-a"}
	e := event("the data of claim-a in tenant-a is still there")
	e.Claim = &ledger.Claim{UID: "s-1", Namespace: "kata-vfio-sanitizing", Name: "stage"}
	e.Type, e.Result, e.Sanitize = ledger.Sanitize, ledger.Failed, &ledger.Sanitization{Profile: "memory", Verdict: "Dirty", After: &after}
	if _, err := open(t, c).Append(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	data := read(t, c.Dir)[ledger.SegmentName(0)]
	for _, name := range []string{"tenant-a", "claim-a"} {
		if strings.Contains(data, name) {
			t.Errorf("%s is in the ledger:\n%s", name, data)
		}
	}
	if !strings.Contains(data, `"after":{"uid":"u-1","namespace":"~`) {
		t.Errorf("the claim before the stage is not in the ledger:\n%s", data)
	}
	if after.Namespace != "tenant-a" || after.Name != "claim-a" {
		t.Errorf("the caller's claim became %+v", after)
	}
}

// read returns the files of a ledger.
func read(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		files[e.Name()] = string(data)
	}
	return files
}

// write returns a new directory with these files, one of them with other data.
func write(t *testing.T, files map[string]string, name, data string) string {
	t.Helper()
	dir := t.TempDir()
	for n, d := range files {
		if n == name {
			d = data
		}
		if err := os.WriteFile(filepath.Join(dir, n), []byte(d), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, there := files[name]; !there && name != "" {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

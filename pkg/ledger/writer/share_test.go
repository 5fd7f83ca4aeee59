package writer_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/ledger/writer"
)

// of returns an event of a namespace, of the size that a claim's events have.
func of(namespace, reason string) ledger.Event {
	return ledger.Event{
		Type: ledger.Prepare, Result: ledger.OK, Reason: reason, Codes: []string{strings.Repeat("x", 800)},
		Claim: &ledger.Claim{UID: "u-" + reason, Namespace: namespace, Name: "claim"},
	}
}

// shared is a ledger in which one namespace's pods come and go while others have little to say.
type shared struct {
	*testing.T
	machine *machine
	w       *writer.Writer
	first   string // the checkpoint after the first event
	quiet   []string
	churned int
}

const (
	sharedLimit   = 200_000
	sharedSegment = 10_000
)

func newShared(t *testing.T) *shared {
	m := newMachine(t)
	m.SegmentBytes, m.RetainBytes = sharedSegment, sharedLimit
	s := &shared{T: t, machine: m, w: open(t, m.Config)}
	s.append(ledger.Event{Type: ledger.Start, Result: ledger.OK, Reason: "start"})
	s.first = s.w.Checkpoint()
	return s
}

func (s *shared) append(events ...ledger.Event) {
	s.Helper()
	if _, err := s.w.Append(s.Context(), events...); err != nil {
		s.Fatal(err)
	}
}

// churn has VFs of a namespace come and go: sixteen in five seconds, ten events each.
func (s *shared) churn(namespace string, times int) {
	s.Helper()
	for range times {
		s.machine.pass(5 * time.Second / 16)
		var events []ledger.Event
		for i := range 10 {
			events = append(events, of(namespace, fmt.Sprintf("%s-%d-%d", namespace, s.churned, i)))
		}
		s.churned++
		if err := s.w.AppendSoon(s.Context(), events...); err != nil {
			s.Fatal(err)
		}
	}
}

// say writes an event of a namespace that must stay.
func (s *shared) say(namespace string) {
	s.Helper()
	reason := fmt.Sprintf("%s says %d", namespace, len(s.quiet))
	s.quiet = append(s.quiet, reason)
	s.append(of(namespace, reason))
}

// wantQuiet checks that all that was said is there, once and in order, and that the ledger is sound and within its limit.
func (s *shared) wantQuiet() *ledger.Report {
	s.Helper()
	var got []string
	for _, reason := range reasons(s.T, s.machine.Dir) {
		if strings.Contains(reason, " says ") {
			got = append(got, reason)
		}
	}
	if !slices.Equal(got, s.quiet) {
		s.Errorf("the others' history has %d events, want %d: %q", len(got), len(s.quiet), got)
	}
	var total int
	for name, data := range read(s.T, s.machine.Dir) {
		if ledger.IsSegment(name) || ledger.IsKept(name) {
			total += len(data)
		}
	}
	if most := sharedLimit + 4*sharedSegment; total > most { // a segment ends with a whole write
		s.Errorf("all events have %d bytes, want at most %d", total, most)
	}
	return verify(s.T, s.machine.Dir, s.first, s.w.Checkpoint())
}

// TestChurnOfOneNamespaceLeavesTheHistoryOfOthers: one namespace writes the ledger's limit many times over.
func TestChurnOfOneNamespaceLeavesTheHistoryOfOthers(t *testing.T) {
	s := newShared(t)
	s.say("tenant-b")
	for range 12 {
		s.churn("tenant-a", 2*16)
		s.say("tenant-b")
		s.say("tenant-c")
	}
	r := s.wantQuiet()
	s.machine.wantEvent("start", true)
	s.machine.wantEvent("tenant-a-0-0", false)
	s.machine.wantEvent(fmt.Sprintf("tenant-a-%d-9", s.churned-1), true)
	if r.Dropped == 0 || r.Anchored != r.Size {
		t.Errorf("report %+v, want it to have dropped events, and to fit both anchors", r)
	}
	if _, err := ledger.ProveEvent(os.DirFS(s.machine.Dir), 1); err != nil {
		t.Errorf("the first event of a quiet namespace can't be proven: %v", err)
	}
	tenancy, err := open(t, s.machine.Config).Tenancy(t.Context(), "u-"+s.quiet[0])
	if err != nil || len(tenancy) != 1 {
		t.Errorf("the tenancy of a VM that runs all the time has %d events, %v; want one", len(tenancy), err)
	}
}

// TestShareIsOfNamespacesThatUseIt: who uses less leaves the rest to the others, and a second one that churns halves it.
func TestShareIsOfNamespacesThatUseIt(t *testing.T) {
	s := newShared(t)
	s.churn("tenant-a", 3*16)
	s.say("tenant-b")
	if alone := s.bytes("tenant-a"); alone < sharedLimit/2 {
		t.Errorf("one namespace keeps %d bytes where nobody else uses them, want more than half of %d", alone, sharedLimit)
	}
	s.churn("tenant-c", 3*16)
	s.churn("tenant-a", 2)
	s.wantQuiet()
	if a, c := s.bytes("tenant-a"), s.bytes("tenant-c"); a < sharedLimit/4 || c < sharedLimit/4 {
		t.Errorf("two namespaces that churn keep %d and %d bytes, want at least a quarter of %d each", a, c, sharedLimit)
	}
}

// bytes returns how much of a namespace's history there is.
func (s *shared) bytes(namespace string) (n int) {
	for e, err := range ledger.Events(os.DirFS(s.machine.Dir)) {
		if err != nil {
			s.Fatal(err)
		}
		if e.Event.Claim != nil && e.Event.Claim.Namespace == namespace {
			n += len(e.Raw)
		}
	}
	return n
}

// TestKeptEventsAreProven: what stays of a dropped segment can't be changed or added to, and old age drops it, too.
func TestKeptEventsAreProven(t *testing.T) {
	s := newShared(t)
	s.say("tenant-b")
	s.churn("tenant-a", 2*16)
	s.wantQuiet()
	name := ledger.KeptName(0)
	files := read(t, s.machine.Dir)
	kept := files[name]
	if !strings.Contains(kept, s.quiet[0]) {
		t.Fatalf("%s has %q, want the event of the quiet namespace", name, kept)
	}
	lines := strings.SplitAfter(kept, "\n")
	for what, data := range map[string]string{
		"changed":  strings.Replace(kept, s.quiet[0], "tenant-b says 9", 1),
		"twice":    kept + kept,
		"cut off":  kept[:len(kept)-1],
		"reversed": lines[1] + lines[0],
	} {
		r, err := ledger.Verify(os.DirFS(write(t, files, name, data)), ledger.Options{})
		if err != nil || r.OK() || r.Problems[0].File != name {
			t.Errorf("%s: %+v, %v; want a problem in %s", what, r, err, name)
		}
	}
	s.machine.pass(s.machine.Retain + time.Hour)
	open(t, s.machine.Config)
	s.machine.wantEvent("start", false)
	if r := verify(t, s.machine.Dir, s.first); r.Dropped == 0 {
		t.Errorf("report %+v", r)
	}
}

// TestCutThatWasCutOffIsMadeAgain: a crash between what stays and the removal of its segment leaves both.
func TestCutThatWasCutOffIsMadeAgain(t *testing.T) {
	s := newShared(t)
	s.say("tenant-b")
	s.churn("tenant-a", 2)
	name := ledger.SegmentName(0)
	segment := read(t, s.machine.Dir)[name]
	s.churn("tenant-a", 2*16)
	if err := os.WriteFile(filepath.Join(s.machine.Dir, name), []byte(segment), 0o600); err != nil {
		t.Fatal(err)
	}
	s.wantQuiet()
	s.w = open(t, s.machine.Config)
	s.churn("tenant-a", 3)
	s.wantQuiet()
	if _, err := os.Stat(filepath.Join(s.machine.Dir, name)); err == nil {
		t.Errorf("%s is still there", name)
	}
}

package journal_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// markChanges are the calls that change marks, of a node on which both functions have a mark and a proof. One function can't be told from
// the marked ones, so that calls for it rewrite the marks of others.
func markChanges(id device.Identity) map[string]struct {
	dir  string
	call func(*journal.Store) error
} {
	a := pci.Address{Bus: 1}
	return map[string]struct {
		dir  string
		call func(*journal.Store) error
	}{
		"MarkClean":       {"unclean", func(s *journal.Store) error { return s.MarkClean(a, id) }},
		"MarkNeedsReset":  {"unclean", func(s *journal.Store) error { return s.MarkNeedsReset(journal.ResetMark{Address: a}) }},
		"MarkSanitized":   {"unsanitized", func(s *journal.Store) error { return s.MarkSanitized(journal.SanitizeProof{Address: a, Identity: id}) }},
		"MarkUnsanitized": {"unsanitized", func(s *journal.Store) error { return s.MarkUnsanitized(journal.SanitizeMark{Address: a}) }},
		"AcceptFirmware":  {"sanitized", func(s *journal.Store) error { return s.AcceptFirmware(journal.SanitizeProof{Address: a}) }},
		"SpoilSanitized":  {"sanitized", func(s *journal.Store) error { return s.SpoilSanitized(a, id) }},
		"MarkDrained":     {"drained", func(s *journal.Store) error { return s.MarkDrained(journal.Drain{Address: a}) }},
		"LiftDrain":       {"drained", func(s *journal.Store) error { return s.LiftDrain(journal.Drain{Address: a}) }},
		"MarkFatalErrors": {"fatal-errors", func(s *journal.Store) error { return s.MarkFatalErrors(journal.FatalErrors{Address: a}) }},
	}
}

// TestOneCallAtATimeChangesMarks: each call waits until another process, here the test, has changed the marks of its kind. It gives up
// if that process does not come to an end.
func TestOneCallAtATimeChangesMarks(t *testing.T) {
	snap := twoGPUs()
	for name, c := range markChanges(snap.Identify(&snap.Functions[0])) {
		for _, held := range []time.Duration{time.Second, time.Minute} {
			t.Run(name+" after "+held.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store, dir := openStore(t)
					unlock := lockDir(t, filepath.Join(dir, c.dir))
					begun, done := time.Now(), make(chan error)
					go func() { done <- c.call(store) }()
					time.AfterFunc(held, unlock)
					err := <-done
					if took := time.Since(begun); (err == nil) != (held == time.Second) || took < time.Second || took > 11*time.Second {
						t.Errorf("%v after %s; want it done after a second, or an error after ten", err, took)
					}
					if err != nil && !strings.Contains(err.Error(), "another process has held the lock for 10s") {
						t.Errorf("got %v, want that another process has the lock", err)
					}
				})
			})
		}
	}
}

// TestMarkOfAnotherIsNotRewrittenByFormerContent: while a function is sanitized, another process enters a stage into the mark of a
// function that may be the same one. Both changes last.
func TestMarkOfAnotherIsNotRewrittenByFormerContent(t *testing.T) {
	snap := twoGPUs()
	proven, other := snap.Identify(&snap.Functions[0]), snap.Identify(&snap.Functions[1])
	other.Slot = "pci0000:00/1f.0/00.0"
	staged := mark(other, "a")
	staged.Stage = &journal.Stage{Pod: "stage"}
	synctest.Test(t, func(t *testing.T) {
		store, dir := openStore(t)
		must(t, store.MarkUnsanitized(mark(other, "a")))
		unlock := lockDir(t, filepath.Join(dir, "unsanitized"))
		done := make(chan error)
		go func() {
			done <- store.MarkSanitized(journal.SanitizeProof{Address: pci.Address{Bus: 1}, Identity: proven})
		}()
		synctest.Wait() // it waits for the lock
		data, err := json.Marshal(staged)
		must(t, err)
		must(t, os.WriteFile(filepath.Join(dir, "unsanitized", "0000:09:00.0.json"), data, 0o600))
		unlock()
		must(t, <-done)
		marks, err := store.Unsanitized()
		must(t, err)
		if len(marks) != 1 || marks[0].Stage == nil || !slices.Equal(marks[0].Proven, []device.Identity{proven}) {
			t.Errorf("got %+v, want one with the stage and the proven function", marks)
		}
	})
}

func openStore(t *testing.T) (*journal.Store, string) {
	t.Helper()
	dir := t.TempDir()
	store, err := journal.Open(dir)
	must(t, err)
	return store, dir
}

// lockDir makes a directory and locks it, as another process does.
func lockDir(t *testing.T, dir string) (unlock func()) {
	t.Helper()
	must(t, os.MkdirAll(dir, 0o700))
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(t, err)
	must(t, unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB))
	return func() { _ = unix.Close(fd) }
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

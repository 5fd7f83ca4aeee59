package journal_test

import (
	"context"
	"encoding/json"
	"fmt"
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
	call func(context.Context, *journal.Store) error
} {
	a := pci.Address{Bus: 1}
	return map[string]struct {
		dir  string
		call func(context.Context, *journal.Store) error
	}{
		"MarkClean": {"unclean", func(ctx context.Context, s *journal.Store) error { return s.MarkClean(ctx, a, id) }},
		"MarkNeedsReset": {"unclean", func(ctx context.Context, s *journal.Store) error {
			return s.MarkNeedsReset(ctx, journal.ResetMark{Address: a})
		}},
		"MarkSanitized": {"unsanitized", func(ctx context.Context, s *journal.Store) error {
			return s.MarkSanitized(ctx, journal.SanitizeProof{Address: a, Identity: id})
		}},
		"MarkUnsanitized": {"unsanitized", func(ctx context.Context, s *journal.Store) error {
			return s.MarkUnsanitized(ctx, journal.SanitizeMark{Address: a})
		}},
		"AcceptFirmware": {"sanitized", func(ctx context.Context, s *journal.Store) error {
			return s.AcceptFirmware(ctx, journal.SanitizeProof{Address: a})
		}},
		"SpoilSanitized": {"sanitized", func(ctx context.Context, s *journal.Store) error { return s.SpoilSanitized(ctx, a, id) }},
		"MarkDrained": {"drained", func(ctx context.Context, s *journal.Store) error {
			return s.MarkDrained(ctx, journal.Drain{Address: a})
		}},
		"LiftDrain": {"drained", func(ctx context.Context, s *journal.Store) error { return s.LiftDrain(ctx, journal.Drain{Address: a}) }},
		"MarkFatalErrors": {"fatal-errors", func(ctx context.Context, s *journal.Store) error {
			return s.MarkFatalErrors(ctx, journal.FatalErrors{Address: a})
		}},
	}
}

// TestOneCallAtATimeChangesMarks: each call waits until another process, here the test, has changed the marks of its kind. It gives up
// with its context, or after a minute if the context has no deadline.
func TestOneCallAtATimeChangesMarks(t *testing.T) {
	snap := twoGPUs()
	for name, c := range markChanges(snap.Identify(&snap.Functions[0])) {
		for _, test := range []struct{ held, limit, took time.Duration }{
			{held: time.Second, took: time.Second},
			{held: 40 * time.Second, limit: 45 * time.Second, took: 40 * time.Second},
			{held: time.Hour, limit: 20 * time.Second, took: 20 * time.Second},
			{held: time.Hour, took: time.Minute},
		} {
			t.Run(fmt.Sprintf("%s held for %s with %s", name, test.held, test.limit), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store, dir := openStore(t)
					unlock := lockDir(t, filepath.Join(dir, c.dir))
					ctx, cancel := t.Context(), context.CancelFunc(func() {})
					if test.limit > 0 {
						ctx, cancel = context.WithTimeout(ctx, test.limit)
					}
					defer cancel()
					begun, done := time.Now(), make(chan error)
					go func() { done <- c.call(ctx, store) }()
					time.AfterFunc(test.held, unlock)
					err := <-done
					took := time.Since(begun)
					if (err == nil) != (took >= test.held) || took < test.took || took > test.took+time.Second {
						t.Errorf("%v after %s; want it to end after %s", err, took, test.took)
					}
					if err != nil && !strings.Contains(err.Error(), "other work, of the plugin or of one of its commands") {
						t.Errorf("got %v, want that other work changes the marks", err)
					}
				})
			})
		}
	}
}

// TestFreeMarksAreChangedAfterTheContext: work that is complete is written down, although its caller has given up.
func TestFreeMarksAreChangedAfterTheContext(t *testing.T) {
	store, _ := openStore(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	must(t, store.MarkNeedsReset(ctx, journal.ResetMark{Address: pci.Address{Bus: 1}}))
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
		must(t, store.MarkUnsanitized(t.Context(), mark(other, "a")))
		unlock := lockDir(t, filepath.Join(dir, "unsanitized"))
		done := make(chan error)
		go func() {
			done <- store.MarkSanitized(t.Context(), journal.SanitizeProof{Address: pci.Address{Bus: 1}, Identity: proven})
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

package buildcache_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/test/internal/buildcache"
)

func newEntry(t *testing.T) buildcache.Entry {
	t.Helper()
	return buildcache.Entry{Dir: filepath.Join(t.TempDir(), "cache"), Key: "key", What: "a thing"}
}

// write is a build of one file.
func write(_ context.Context, b buildcache.Build) error {
	return os.WriteFile(filepath.Join(b.Into, "result"), []byte("done"), 0o644)
}

func result(t *testing.T, e buildcache.Entry) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(e.Path(), "result"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestManyCallersBuildOnce(t *testing.T) {
	e := newEntry(t)
	var builds atomic.Int32
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			err := e.Ensure(t.Context(), io.Discard, func(ctx context.Context, b buildcache.Build) error {
				builds.Add(1)
				return write(ctx, b)
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := builds.Load(); n != 1 || result(t, e) != "done" {
		t.Errorf("it was built %d times", n)
	}
}

func TestBuildSaysWhereItIsAndOneThatIsThereSaysNothing(t *testing.T) {
	e := newEntry(t)
	for _, want := range []string{
		"[   0s] building a thing (log: " + e.Path() + ".log)\n[   0s] half\n[   0s] built " + e.Path() + "\n", "",
	} {
		var said strings.Builder
		err := e.Ensure(t.Context(), &said, func(ctx context.Context, b buildcache.Build) error {
			b.Progress.Step("half")
			return write(ctx, b)
		})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, said.String()); diff != "" {
			t.Errorf("progress (-want +got):\n%s", diff)
		}
	}
}

func TestFailedBuildLeavesItsLogAlone(t *testing.T) {
	e, failure := newEntry(t), errors.New("no compiler")
	err := e.Ensure(t.Context(), io.Discard, func(ctx context.Context, b buildcache.Build) error {
		_, err := io.WriteString(b.Log, "words")
		return errors.Join(failure, err, write(ctx, b))
	})
	if !errors.Is(err, failure) || !strings.Contains(err.Error(), e.Path()+".log") {
		t.Errorf("the error is %v", err)
	}
	if text, err := os.ReadFile(e.Path() + ".log"); err != nil || string(text) != "words" {
		t.Errorf("the log is %q, %v", text, err)
	}
	for _, dir := range []string{e.Path(), e.Working()} {
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left (%v)", dir, err)
		}
	}
}

func TestUnfinishedBuildIsNotUsed(t *testing.T) {
	e := newEntry(t)
	if err := os.MkdirAll(e.Working(), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(e.Working(), "half"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := e.Ensure(t.Context(), io.Discard, write); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(e.Path(), "half")); err == nil || result(t, e) != "done" {
		t.Error("the unfinished build became the entry")
	}
}

func TestWaitingForAnotherBuildEndsWithTheContext(t *testing.T) {
	e := newEntry(t)
	if err := os.MkdirAll(e.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	unlock, err := e.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	enough := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(enough)
	if err := e.Ensure(ctx, io.Discard, write); !errors.Is(err, enough) || !strings.Contains(err.Error(), "a thing") {
		t.Errorf("waiting ended by %v", err)
	}
}

func TestVariableMovesTheCache(t *testing.T) {
	const variable = "KATA_VFIO_TEST_CACHE"
	t.Setenv("XDG_CACHE_HOME", "/home/x/.cache")
	for value, want := range map[string]string{"": "/home/x/.cache/kata-vfio/lab", "/mnt/cache": "/mnt/cache"} {
		t.Setenv(variable, value)
		if got, err := buildcache.Dir(variable, "lab"); err != nil || got != want {
			t.Errorf("with %q it is %s, %v; want %s", value, got, err, want)
		}
	}
}

package image

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// newRunner returns a runner with its log: a file, which takes both of a command's outputs at a time.
func newRunner(t *testing.T) (r runner, log string) {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return runner{log: f}, f.Name()
}

func TestCommandsWordsAreInTheLogAndInItsError(t *testing.T) {
	r, log := newRunner(t)
	err := r.host(t.Context(), "sh", "-c", "echo an output; echo an error >&2; exit 3")
	text, readErr := os.ReadFile(log)
	if err == nil || readErr != nil {
		t.Fatal(err, readErr)
	}
	for _, want := range []string{"an output\n", "an error\n", "sh -c echo"} {
		if !strings.Contains(err.Error()+"\n", want) || !strings.Contains(string(text), want) {
			t.Errorf("want %q in the error %q and in the log %q", want, err, text)
		}
	}
}

// What a command mounts is gone with it.
func TestChrootHasItsOwnMounts(t *testing.T) {
	own, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		t.Fatal(err)
	}
	r, _ := newRunner(t)
	got, err := r.chroot(t.Context(), "/", "sh", "-c", `readlink /proc/self/ns/mnt; echo "$HOME $INITRD"; pwd; echo words >&2`)
	if err != nil {
		t.Fatal(err)
	}
	ns, rest, _ := strings.Cut(got, "\n")
	if ns == own || !strings.HasPrefix(ns, "mnt:") || rest != "/root No\n/\n" {
		t.Errorf("it said %q, our mounts are %s", got, own)
	}
}

func TestCommandEndsWithTheContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r, _ := newRunner(t)
	if err := r.host(ctx, "sleep", "600"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

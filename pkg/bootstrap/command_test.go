package bootstrap

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestAToolsEndIsTold(t *testing.T) {
	c := command{root: "/"}
	if err := c.Run(t.Context(), []string{"sh", "-c", "exit 0"}); err != nil {
		t.Error(err)
	}
	err := c.Run(t.Context(), []string{"sh", "-c", "echo a problem; echo another >&2; exit 7"})
	if err == nil || err.Error() != "exit status 7: a problem; another" {
		t.Errorf("error %v", err)
	}
	if err := c.Run(t.Context(), []string{"no-such-tool"}); err == nil || !strings.Contains(err.Error(), "no-such-tool") {
		t.Errorf("error %v", err)
	}
}

// What a tool has started, and what holds its output open, ends with it.
func TestAToolIsEndedAtItsLimitWithAllThatItStarted(t *testing.T) {
	cause, pid := errors.New("the limit"), filepath.Join(t.TempDir(), "pid")
	if err := unix.Mkfifo(pid, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	ended := make(chan error, 1)
	go func() {
		ended <- command{root: "/"}.Run(ctx, []string{"sh", "-c", "sleep 1000 & echo $! > " + pid + "; wait"})
	}()
	text, err := os.ReadFile(pid) // once the child is there
	if err != nil {
		t.Fatal(err)
	}
	cancel(cause)
	if err := <-ended; !errors.Is(err, cause) {
		t.Errorf("error %v", err)
	}
	stat, err := os.ReadFile(filepath.Join("/proc", strings.TrimSpace(string(text)), "stat"))
	if err == nil && !strings.Contains(string(stat), ") Z ") {
		t.Errorf("the child goes on: %s", stat)
	}
}

func TestAnImagesToolsRunInsideIt(t *testing.T) {
	root := t.TempDir()       // without an env to start anything with
	want := error(unix.EPERM) // chroot(2) is root's
	if os.Geteuid() == 0 {
		want = unix.ENOENT
	}
	if err := (command{root: root}).Run(t.Context(), []string{"sh", "-c", "exit 0"}); !errors.Is(err, want) {
		t.Errorf("error %v, want %v: a tool of this machine's was run", err, want)
	}
}

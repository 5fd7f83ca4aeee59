package writer

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestToolsEndIsTold(t *testing.T) {
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

// Processes that a tool started, and those that have its output open, end with it.
func TestToolIsEndedAtItsLimitWithAllThatItStarted(t *testing.T) {
	cause, alive := errors.New("the limit"), filepath.Join(t.TempDir(), "alive")
	if err := unix.Mkfifo(alive, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	ended := make(chan error, 1)
	go func() {
		ended <- command{root: "/"}.Run(ctx, []string{"sh", "-c", "(echo started; sleep 1000) > " + alive + " & wait"})
	}()
	child, err := os.Open(alive) // and the child holds the other end for as long as it lives
	if err != nil {
		t.Fatal(err)
	}
	defer child.Close()
	said := bufio.NewReader(child)
	if line, err := said.ReadString('\n'); err != nil || line != "started\n" {
		t.Fatalf("the child says %q: %v", line, err)
	}
	cancel(cause)
	if err := <-ended; !errors.Is(err, cause) {
		t.Errorf("error %v", err)
	}
	if err := child.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(said); err != nil {
		t.Errorf("the child goes on: %v", err)
	}
}

func TestImagesToolsRunInsideIt(t *testing.T) {
	root := t.TempDir()       // without an env to start anything with
	want := error(unix.EPERM) // chroot(2) is root's
	if os.Geteuid() == 0 {
		want = unix.ENOENT
	}
	if err := (command{root: root}).Run(t.Context(), []string{"sh", "-c", "exit 0"}); !errors.Is(err, want) {
		t.Errorf("error %v, want %v: a tool of this machine's was run", err, want)
	}
}

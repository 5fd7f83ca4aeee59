package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// pty returns a terminal of so many lines, and what somebody sees of it.
func pty(t *testing.T, height uint16) (program *os.File, seen *bufio.Reader) {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	fd := int(screen.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: height, Col: 80}); err != nil {
		t.Fatal(err)
	}
	program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = program.Close(), screen.Close() })
	return program, bufio.NewReader(screen)
}

// nextPicture reads what is drawn next: all up to where long lines are let wrap again.
func nextPicture(t *testing.T, seen *bufio.Reader) string {
	t.Helper()
	var text strings.Builder
	for !strings.HasSuffix(text.String(), wrapOn) {
		b, err := seen.ReadByte()
		if err != nil {
			t.Fatalf("%v after %q", err, text.String())
		}
		text.WriteByte(b)
	}
	return strings.ReplaceAll(text.String(), "\r\n", "\n")
}

// TestTerminalIsRedrawn as a whole, cut to its height, when something changes.
func TestTerminalIsRedrawn(t *testing.T) {
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "1")
	program, seen := pty(t, 6)
	client := sample(t)
	ctx, end := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- execute(ctx, sessionOf(client), []string{"devices", "--node", "worker-1", "--watch"}, program, io.Discard)
	}()
	first := nextPicture(t, seen)
	if !strings.HasPrefix(first, clear+wrapOff+"NODE ") || strings.Count(first, "\n") != 5 || !strings.HasSuffix(first, "... 4 more lines\n"+wrapOn) {
		t.Errorf("it draws %q", first)
	}
	take(t, client, "team-c", "vf-0000-5e-00-3")
	if second := nextPicture(t, seen); !strings.HasPrefix(second, clear+wrapOff+"NODE ") {
		t.Errorf("it draws %q then", second)
	}
	end()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

package output_test

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
)

// TestWidthIsTheTerminals, within bounds, and 100 where there is none.
func TestWidthIsTheTerminals(t *testing.T) {
	t.Setenv("COLUMNS", "")
	tty, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatalf("open a pseudo-terminal: %v", err)
	}
	defer func() { _ = tty.Close() }()
	for columns, want := range map[uint16][2]int{0: {100, 0}, 20: {60, 60}, 80: {80, 80}, 132: {132, 132}, 500: {200, 200}} {
		if err := unix.IoctlSetWinsize(int(tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: columns, Row: 24}); err != nil {
			t.Fatal(err)
		}
		if got := [2]int{output.Width(tty), output.TableWidth(tty)}; got != want {
			t.Errorf("%d columns: %v, want %v", columns, got, want)
		}
	}
	t.Setenv("COLUMNS", "90")
	if got := output.Width(tty); got != 90 {
		t.Errorf("COLUMNS=90: %d", got)
	}
	if got := [2]int{output.Width(&strings.Builder{}), output.TableWidth(&strings.Builder{})}; got != [2]int{output.PageWidth, 0} {
		t.Errorf("no terminal: %v", got)
	}
}

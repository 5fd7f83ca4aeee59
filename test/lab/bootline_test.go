package lab

import (
	"os"
	"path/filepath"
	"testing"
)

// TestBootIsShown: the last line of the console, without what would move the cursor.
func TestBootIsShown(t *testing.T) {
	m := &Machine{dir: t.TempDir()}
	if got, want := m.bootLine(), "the lab machine boots"; got != want {
		t.Errorf("before there is a console: got %q, want %q", got, want)
	}
	if err := os.WriteFile(filepath.Join(m.dir, consoleFile), []byte("[ 1.0] first\r\n[ 2.0] \x1b[2Jsecond\r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, want := m.bootLine(), "the lab machine boots: [ 2.0] [2Jsecond"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

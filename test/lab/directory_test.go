package lab

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Only the directories of processes that are gone are swept.
func TestNewDirectory(t *testing.T) {
	parent := t.TempDir()
	gone := exec.CommandContext(t.Context(), "true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	for name, kept := range map[string]bool{
		fmt.Sprintf("%s%d-1", directoryPrefix, gone.Process.Pid): false,
		fmt.Sprintf("%s%d-1", directoryPrefix, os.Getpid()):      true,
		directoryPrefix + "mine-1":                               true,
		"other-1-1":                                              true,
	} {
		path := filepath.Join(parent, name)
		if err := os.Mkdir(path, 0o755); err != nil {
			t.Fatal(err)
		}
		if _, err := newDirectory(parent); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(path); (err == nil) != kept {
			t.Errorf("%s: %v, want it kept: %v", name, err, kept)
		}
	}
}

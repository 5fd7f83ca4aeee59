package command_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
)

// TestReadArgument: a file, or standard input, up to the limit; all else is the user's to mend.
func TestReadArgument(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("12345"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{file: "12345", "-": "stdin"} {
		if data, err := command.ReadArgument(strings.NewReader("stdin"), name, 5); err != nil || string(data) != want {
			t.Errorf("%s: %q, %v", name, data, err)
		}
	}
	for _, name := range []string{file, "-", file + ".none", t.TempDir()} {
		if data, err := command.ReadArgument(strings.NewReader("stdin"), name, 4); command.ExitCode(err) != command.Usage {
			t.Errorf("%s: %q, %v", name, data, err)
		}
	}
}

// TestNumberOfArguments is said where it is wrong.
func TestNumberOfArguments(t *testing.T) {
	cmd := &cobra.Command{Use: "prog"}
	for n, want := range map[int][2]bool{0: {false, true}, 1: {false, true}, 2: {true, true}, 3: {false, false}} {
		args := make([]string, n)
		exact, most := command.ExactArgs(2, "two files")(cmd, args), command.MaxArgs(2, "two files")(cmd, args)
		if exact == nil != want[0] || most == nil != want[1] {
			t.Errorf("of %d: exactly two: %v; at most two: %v", n, exact, most)
		}
	}
	if err := command.MaxArgs(0, "one node")(cmd, []string{"a"}); command.ExitCode(err) != command.Usage || !strings.Contains(err.Error(), "prog wants at most one node") {
		t.Error(err)
	}
}

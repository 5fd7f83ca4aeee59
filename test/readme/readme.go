// Package readme finds the commands that the project's README tells people to run, for
// the tests of those who must know them.
package readme

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// Commands are the arguments with which the README runs a program of ours, in the order in
// which it does, in the section with the heading ("Uninstall") and those below it.
// Words in capitals (UID, ADDRESS) stand for something.
func Commands(tb testing.TB, heading, program string) [][]string {
	tb.Helper()
	section := Section(tb, heading)
	var all [][]string
	for _, m := range regexp.MustCompile(regexp.QuoteMeta(program)+"((?: (?:[a-zA-Z0-9/=.:-]+|'[^'\\n]*'))+)(?:`|\\n| \\|)").FindAllStringSubmatch(section, -1) {
		all = append(all, strings.Fields(m[1]))
	}
	if len(all) == 0 {
		tb.Fatalf("README.md does not run %s in %q", program, heading)
	}
	return all
}

// Section is the README's text below a heading, with that of the headings below it.
func Section(tb testing.TB, heading string) string {
	tb.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		tb.Fatal(err)
	}
	_, section, ok := strings.Cut(string(text), "\n## "+heading+"\n")
	if !ok {
		tb.Fatalf("README.md has no section %q", heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	return section
}

// Check reports a command line that the program would not understand: a command under its
// parents, or a flag, that it does not have.
func Check(tb testing.TB, program *cobra.Command, args []string) {
	tb.Helper()
	cmd, rest, err := program.Find(args)
	if err == nil && len(rest) > 0 && cmd.HasSubCommands() {
		err = fmt.Errorf("%s has no such command", cmd.CommandPath())
	}
	if err == nil {
		err = cmd.ParseFlags(rest)
	}
	if err != nil {
		tb.Errorf("%s %q: %v", program.Name(), args, err)
	}
}

package command_test

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
)

func TestFlagThatIsGivenTwiceIsRefused(t *testing.T) {
	var file string
	flags := pflag.NewFlagSet("program", pflag.ContinueOnError)
	command.OnceVarP(flags, &file, "file", "f", "the file")
	if err := flags.Parse([]string{"-f", "a"}); err != nil || file != "a" {
		t.Errorf("got %q, %v; want a", file, err)
	}
	err := flags.Parse([]string{"--file", "b"})
	if err == nil || !strings.Contains(err.Error(), `"-f, --file" flag: the flag is given twice, and takes one`) || file != "a" {
		t.Errorf("got %q, %v; want an error, and a as before", file, err)
	}
	if usage := flags.FlagUsages(); !strings.Contains(usage, "-f, --file string   the file\n") {
		t.Errorf("usage %q, want that of an ordinary flag", usage)
	}
}

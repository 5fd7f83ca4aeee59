package commandline_test

import (
	"errors"
	"flag"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/test/tools/release/commandline"
)

func TestParseWritesHelpAndReturnsOtherErrors(t *testing.T) {
	for _, c := range []struct {
		args       []string
		help, want string
	}{
		{[]string{"-o", "x"}, "", ""},
		{[]string{"-help"}, "usage: tool -o FILE", "help requested"},
		{[]string{"-p"}, "", "flag provided but not defined"},
		{[]string{"-o", "x", "y"}, "", `unexpected argument "y"`},
	} {
		var help strings.Builder
		flags := flag.NewFlagSet("tool", flag.ContinueOnError)
		flags.String("o", "", "a file")
		err := commandline.Parse(flags, "tool -o FILE", c.args, &help)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.args, err, c.want)
		}
		if !strings.HasPrefix(help.String(), c.help) || c.help == "" && help.Len() > 0 {
			t.Errorf("%q: the help is %q", c.args, &help)
		}
		if c.help != "" && !errors.Is(err, flag.ErrHelp) {
			t.Errorf("%q: %v", c.args, err)
		}
	}
}

func TestCheckVersionWantsThreeNumbers(t *testing.T) {
	for version, good := range map[string]bool{"1.2.3": true, "1.2.3-dev": true, "1.2": false, "v1.2.3": false, "": false} {
		if err := commandline.CheckVersion(version); (err == nil) != good {
			t.Errorf("%q: %v", version, err)
		}
	}
}

package kernelargs_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/sysfs/kernelargs"
)

func TestBooleansAreReadByTheirFirstLetters(t *testing.T) {
	for want, values := range map[[2]bool][]string{
		{true, true}:   {"", "1", "y", "Y", "yes", "true", "T", "on", "ON", "enable"},
		{false, true}:  {"0", "n", "No", "false", "off", "OF", "disable"},
		{false, false}: {"o", "2", "-", "wrong", "\x80"},
	} {
		for _, value := range values {
			if on, ok := kernelargs.Bool(value); on != want[0] || ok != want[1] {
				t.Errorf("%q is %t, %t", value, on, ok)
			}
		}
	}
}

func TestModprobesFilesGoByNameAndTheFirstDirectorysHides(t *testing.T) {
	in := map[string][]string{"etc/modprobe.d": {"b.conf", "readme"}, "usr/local/lib/modprobe.d": {"c.conf"}, "usr/lib/modprobe.d": {"a.conf", "b.conf"}, "lib/modprobe.d": {"a.conf", "d.conf"}}
	got := kernelargs.ModprobeFiles(func(dir string) []string { return in[dir] })
	want := []string{"usr/lib/modprobe.d/a.conf", "etc/modprobe.d/b.conf", "usr/local/lib/modprobe.d/c.conf", "lib/modprobe.d/d.conf"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

func TestModprobesLinesGoOnBehindABackslash(t *testing.T) {
	got := kernelargs.ModprobeLines("options a \\\n b=1 \\\n c=2\n\n# options \\\nx y\noptions d e=3\noptions f \\\n")
	want := []kernelargs.ModprobeLine{{1, "options a  b=1  c=2"}, {7, "options d e=3"}, {8, "options f "}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

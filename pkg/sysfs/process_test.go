package sysfs_test

import (
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

func TestParseStartTime(t *testing.T) {
	const rest = " S 1 1 1 0 -1 4194560 1 1 1 1 1 1 1 1 20 0 1 0 8675309 1 1"
	for _, comm := range []string{"bash", "a b", "x) S (", ")", ""} {
		if got, err := sysfs.ParseStartTime("1 (" + comm + ")" + rest); err != nil || got != 8675309 {
			t.Errorf("%q: %d, %v", comm, got, err)
		}
	}
	for _, bad := range []string{"", "1 (x) S 1 1", "1 (x)" + strings.Replace(rest, "8675309", "-1", 1)} {
		if got, err := sysfs.ParseStartTime(bad); err == nil {
			t.Errorf("%q: %d, want an error", bad, got)
		}
	}
}

func FuzzParseStartTime(f *testing.F) {
	f.Add("1 (x) S 1 1 1 0 -1 4194560 1 1 1 1 1 1 1 1 20 0 1 0 8675309 1 1")
	f.Add(")")
	f.Fuzz(func(_ *testing.T, stat string) { _, _ = sysfs.ParseStartTime(stat) })
}

package sysfs_test

import (
	"fmt"
	"slices"
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

// TestIsEnding: a process that was killed ends until its last thread has closed what it had; as a zombie of one thread it
// has closed all.
func TestIsEnding(t *testing.T) {
	stat := func(state string, flags, threads int) string {
		return fmt.Sprintf("4711 (a) Z 1) %s 1 1 1 0 -1 %d 1 1 1 1 1 1 1 1 20 0 %d 0 8675309 1 1", state, flags, threads)
	}
	for text, want := range map[string]bool{
		stat("S", 0x400100, 3): false,
		stat("D", 0x400104, 1): true,
		stat("Z", 0x40010c, 2): true,
		stat("Z", 0x40010c, 1): false,
	} {
		if got, err := sysfs.IsEnding(text); err != nil || got != want {
			t.Errorf("%q ends: %t, %v; want %t", text, got, err, want)
		}
	}
	for _, text := range []string{"", "4711 (a) Z 1 1", "4711 (a) Z 1 1 1 0 -1 x 1 1 1 1 1 1 1 1 20 0 1 0", "4711 (a) Z 1 1 1 0 -1 4 1 1 1 1 1 1 1 1 20 0 x 0"} {
		if _, err := sysfs.IsEnding(text); err == nil {
			t.Errorf("%q is not an error", text)
		}
	}
}

// TestIsKernelThread: kworkers are, and a user's process is not, whatever it calls itself.
func TestIsKernelThread(t *testing.T) {
	for text, want := range map[string]bool{
		"10 (kworker/0:0H-events_highpri) I 2 0 0 0 -1 69238880 0 0": true,
		"4711 (kworker/0:0) S 1 4711 4711 0 -1 4194560 1 1":          false,
	} {
		if got, err := sysfs.IsKernelThread(text); err != nil || got != want {
			t.Errorf("%q: got %t, %v; want %t", text, got, err, want)
		}
	}
	for _, text := range []string{"", "10 (a) I 2 0 0 0", "10 (a) I 2 0 0 0 -1 x"} {
		if got, err := sysfs.IsKernelThread(text); err == nil || got {
			t.Errorf("%q: got %t, %v; want an error", text, got, err)
		}
	}
}

func TestStatusFieldIsFoundByItsWholeName(t *testing.T) {
	const status = "Name:\tPPid: 7\nPid:\t4711\nPPid:\t1\nUid:\t0\t1000\t0\t0\nGroups:\t\n"
	for name, want := range map[string]string{"Pid": "4711", "PPid": "1", "Uid": "0\t1000\t0\t0", "Groups": ""} {
		if got, ok := sysfs.StatusField(status, name); got != want || !ok {
			t.Errorf("%s: got %q (%t), want %q", name, got, ok, want)
		}
	}
	if got, ok := sysfs.StatusField(status, "id"); ok {
		t.Errorf("id: got %q, want none", got)
	}
}

func TestArgumentsEndWithNullBytes(t *testing.T) {
	for text, want := range map[string][]string{
		"":                           nil,
		"/bin/a\x00--b\x00c d\x00":   {"/bin/a", "--b", "c d"},
		"/bin/a\x00\x00b\x00":        {"/bin/a", "", "b"},
		"a title that it wrote over": {"a title that it wrote over"},
	} {
		if got := sysfs.ParseArguments(text); !slices.Equal(got, want) {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

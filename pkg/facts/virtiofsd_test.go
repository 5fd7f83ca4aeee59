package facts_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/facts"
)

func TestDropsMknod(t *testing.T) {
	for args, want := range map[string]bool{
		"--modcaps=-mknod":                           true,
		"--modcaps -mknod":                           true,
		"--modcaps=+sys_admin:-MKNOD:-chown":         true,
		"-o announce_submounts,modcaps=-mknod,xattr": true,
		"--modcaps=-mknod:+mknod":                    false,
		"--modcaps=-chown":                           false,
		"--modcaps=-mknodat":                         false,
		"--modcaps":                                  false,
		"--modcaps=-mknod --modcaps=-chown":          false,
		"--announce-submounts":                       false,
		"":                                           false,
	} {
		if got := facts.DropsMknod(strings.Fields(args)); got != want {
			t.Errorf("DropsMknod(%s) = %t, want %t", args, got, want)
		}
	}
}

func TestWithoutMknod(t *testing.T) {
	for args, want := range map[string]string{
		"":                                    "--modcaps=-mknod",
		"--thread-pool-size=1 -o xattr":       "--thread-pool-size=1 -o xattr --modcaps=-mknod",
		"--modcaps=-mknod":                    "--modcaps=-mknod",
		"--modcaps=+sys_admin --xattr":        "--modcaps=+sys_admin:-mknod --xattr",
		"--modcaps +sys_admin --xattr":        "--modcaps +sys_admin:-mknod --xattr",
		"-o modcaps=-chown,xattr --readonly":  "-o modcaps=-chown:-mknod,xattr --readonly",
		"-o xattr,modcaps=-chown --readonly":  "-o xattr,modcaps=-chown:-mknod --readonly",
		"--modcaps=-mknod:+mknod --posix-acl": "--modcaps=-mknod:+mknod:-mknod --posix-acl",
	} {
		given := strings.Fields(args)
		got := facts.WithoutMknod(given)
		if strings.Join(got, " ") != want || !facts.DropsMknod(got) {
			t.Errorf("WithoutMknod(%s) = %q, want %s", args, got, want)
		}
		if !slices.Equal(given, strings.Fields(args)) {
			t.Errorf("WithoutMknod(%s) changed its argument to %q", args, given)
		}
	}
}

package runtimes_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// files are a node's, by path; one that begins with "-> " is a link.
type files map[string]string

// node is a node that has the files.
func node(tb testing.TB, of files) *facts.Node {
	tb.Helper()
	root := tb.TempDir()
	for name, text := range of {
		path := filepath.Join(root, name)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if target, ok := strings.CutPrefix(text, "-> "); ok && err == nil {
			err = os.Symlink(target, path)
		} else if err == nil {
			err = os.WriteFile(path, []byte(text), 0o644)
		}
		if err != nil {
			tb.Fatal(err)
		}
	}
	fsys, err := sysfs.Open(root)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = fsys.Close() })
	return facts.New(fsys, &device.Snapshot{})
}

// fragment is one of the files of runtimeclass/.
func fragment(tb testing.TB, name string) string {
	tb.Helper()
	text, err := os.ReadFile(filepath.Join("../../../runtimeclass", name))
	if err != nil {
		tb.Fatal(err)
	}
	return string(text)
}

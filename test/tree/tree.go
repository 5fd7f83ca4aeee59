// Package tree makes trees of files for tests of what reads them.
package tree

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// Open opens a node that has the files, by path; one that begins with "-> " is a
// link. It ends with the test.
func Open(tb testing.TB, files map[string]string) *sysfs.FS {
	tb.Helper()
	root := tb.TempDir()
	for name, text := range files {
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
	return fsys
}

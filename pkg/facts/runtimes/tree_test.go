package runtimes_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/test/tree"
)

// files are a node's, by path; one that begins with "-> " is a link.
type files map[string]string

// node is a node that has the files.
func node(tb testing.TB, of files) *facts.Node {
	tb.Helper()
	return facts.New(tree.Open(tb, of), &device.Snapshot{})
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

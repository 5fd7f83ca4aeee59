package inventory_test

import (
	"maps"
	"os"
	"path"
	"path/filepath"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// tree is a node made file by file, for what no scripted kernel would show:
// odd places, odd contents, many thousands of functions.
type tree struct {
	tb  testing.TB
	dir string
}

func newTree(tb testing.TB) tree {
	tb.Helper()
	t := tree{tb: tb, dir: tb.TempDir()}
	t.mkdir(sysfs.Devices)
	return t
}

func (t tree) open() *sysfs.FS {
	t.tb.Helper()
	node, err := sysfs.Open(t.dir)
	if err != nil {
		t.tb.Fatal(err)
	}
	t.tb.Cleanup(func() { _ = node.Close() })
	return node
}

func (t tree) mkdir(name string) {
	t.tb.Helper()
	if err := os.MkdirAll(filepath.Join(t.dir, name), 0o755); err != nil {
		t.tb.Fatal(err)
	}
}

func (t tree) put(name, content string) {
	t.tb.Helper()
	t.mkdir(path.Dir(name))
	if err := os.WriteFile(filepath.Join(t.dir, name), []byte(content), 0o644); err != nil {
		t.tb.Fatal(err)
	}
}

func (t tree) remove(name string) {
	t.tb.Helper()
	if err := os.RemoveAll(filepath.Join(t.dir, name)); err != nil {
		t.tb.Fatal(err)
	}
}

// link makes a relative link at name to another path of the tree.
func (t tree) link(name, to string) {
	t.tb.Helper()
	t.mkdir(path.Dir(name))
	rel, err := filepath.Rel(path.Dir(name), to)
	if err != nil {
		t.tb.Fatal(err)
	}
	if err := os.Symlink(rel, filepath.Join(t.dir, name)); err != nil {
		t.tb.Fatal(err)
	}
}

// function adds a function at a place below sys/devices, whose last element is
// its address, and returns the place. attributes override and add to those
// that every function has.
func (t tree) function(place string, attributes map[string]string) string {
	t.tb.Helper()
	where := path.Join("sys/devices", place)
	all := map[string]string{
		"vendor": "0x8086\n", "device": "0x10ca\n", "class": "0x020000\n",
		"subsystem_vendor": "0x8086\n", "subsystem_device": "0x0001\n", "revision": "0x01\n",
		"numa_node": "-1\n", "driver_override": "(null)\n",
	}
	maps.Copy(all, attributes)
	for name, content := range all {
		t.put(path.Join(where, name), content)
	}
	t.link(path.Join(sysfs.Devices, path.Base(place)), where)
	return where
}

// driver binds the function at a place to a driver.
func (t tree) driver(where, driver string) {
	t.tb.Helper()
	t.mkdir("sys/bus/pci/drivers/" + driver)
	t.link(where+"/driver", "sys/bus/pci/drivers/"+driver)
}

func addr(tb testing.TB, text string) pci.Address {
	tb.Helper()
	a, err := pci.ParseAddress(text)
	if err != nil {
		tb.Fatal(err)
	}
	return a
}

package sysfs_test

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

const nic = "0000:3b:00.0"

// node opens a tree of files and links: "name": "content", or "name": "-> target".
func node(t *testing.T, files map[string]string) *sysfs.FS {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if target, ok := strings.CutPrefix(content, "-> "); ok {
			err = os.Symlink(target, name)
		} else {
			err = os.WriteFile(name, []byte(content), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	f, err := sysfs.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// bound is a node with one function, bound to igb and in group 15.
func bound(t *testing.T, more map[string]string) *sysfs.FS {
	t.Helper()
	const dir = "sys/devices/pci0000:3a/0000:3a:00.0/" + nic
	files := map[string]string{
		"sys/bus/pci/devices/" + nic:   "-> ../../../devices/pci0000:3a/0000:3a:00.0/" + nic,
		"sys/bus/pci/drivers/igb/bind": "",
		dir + "/driver":                "-> ../../../../bus/pci/drivers/igb",
		dir + "/iommu_group":           "-> ../../../../kernel/iommu_groups/15",
		dir + "/driver_override":       "(null)\n",
		dir + "/config":                strings.Repeat("\x00", 256),
		dir + "/vendor":                "0x8086\n",
	}
	for name, content := range more {
		if content == "" {
			delete(files, dir+"/"+name)
		} else {
			files[dir+"/"+name] = content
		}
	}
	return node(t, files)
}

func address(t *testing.T, text string) pci.Address {
	t.Helper()
	a, err := pci.ParseAddress(text)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestReads(t *testing.T) {
	f := bound(t, nil)
	text, err := f.ReadString("sys/bus/pci/devices/" + nic + "/vendor")
	if err != nil || text != "0x8086" {
		t.Errorf("vendor is %q, %v", text, err)
	}
	target, err := f.ReadLink("sys/bus/pci/devices/" + nic + "/driver")
	if err != nil || target != "../../../../bus/pci/drivers/igb" {
		t.Errorf("driver links to %q, %v", target, err)
	}
	names, err := f.ReadDir("sys/bus/pci/devices/" + nic)
	if err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"config", "driver", "driver_override", "iommu_group", "vendor"}, names); diff != "" {
		t.Errorf("attributes (-want +got):\n%s", diff)
	}
	for name, want := range map[string]bool{
		"sys/bus/pci/devices/" + nic: true, "sys/bus/pci/devices/" + nic + "/driver": true,
		"sys/bus/pci/devices/" + nic + "/iommu_group": false, // leads nowhere
		"dev/iommu": false,
	} {
		if got, err := f.Exists(name); err != nil || got != want {
			t.Errorf("Exists(%q) = %v, %v; want %v", name, got, err, want)
		}
	}
}

func TestErrorsNameThePath(t *testing.T) {
	f := node(t, map[string]string{"sys/class/net/eth0/address": "x"})
	const file = "sys/class/net/eth0/mtu"
	_, readErr := f.ReadFile(file)
	_, linkErr := f.ReadLink(file)
	_, dirErr := f.ReadDir(file)
	_, statErr := f.Stat(file)
	_, openErr := f.OpenDir(file)
	for _, err := range []error{readErr, linkErr, dirErr, statErr, openErr} {
		if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), file) {
			t.Errorf("error %v: want ErrNotExist with the path", err)
		}
	}
	if _, err := sysfs.Open(filepath.Join(f.Path(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("open a root that is not there: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := f.ReadFile("sys/class/net/eth0/address"); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("read after Close: %v, want ErrClosed", err)
	}
}

// Stat describes files as the os package does.
func TestStat(t *testing.T) {
	root, err := sysfs.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	for _, name := range []string{"dev/null", "tmp", "etc/passwd", "."} {
		want, err := os.Stat("/" + name)
		if err != nil {
			t.Fatal(err)
		}
		got, err := root.Stat(name)
		if err != nil || got.Mode() != want.Mode() || got.IsDir() != want.IsDir() {
			t.Errorf("Stat(%q) = %v, %v; want mode %v", name, got, err, want.Mode())
			continue
		}
		if got.IsDir() { // others may write to it
			continue
		}
		a, b := got.Sys().(*syscall.Stat_t), want.Sys().(*syscall.Stat_t)
		if got.Name() != path.Base(name) || got.Size() != want.Size() || !got.ModTime().Equal(want.ModTime()) || a.Rdev != b.Rdev {
			t.Errorf("Stat(%q) = %+v, want %+v", name, a, b)
		}
	}
}

// A captured tree must not lead to the node that looks at it.
func TestNothingLeavesTheRoot(t *testing.T) {
	f := node(t, map[string]string{
		"sys/absolute":    "-> /etc",
		"sys/relative":    "-> ../../../../../../../etc",
		"sys/chain":       "-> absolute",
		"sys/dir/hosts":   "-> /etc/hosts",
		"sys/inside":      "-> dir/../plain",
		"sys/plain":       "here\n",
		"proc/1/fd/3":     "-> /dev/null",
		"sys/dir/sibling": "-> ../plain",
	})
	for _, file := range []string{"sys/absolute/hosts", "sys/relative/hosts", "sys/chain/hosts", "sys/dir/hosts", "../etc/hosts", "/etc/hosts"} {
		if data, err := f.ReadFile(file); err == nil {
			t.Errorf("ReadFile(%q) left the root: %q", file, data)
		}
		if there, err := f.Exists(file); there {
			t.Errorf("Exists(%q) looked outside the root: %v, %v", file, there, err)
		}
	}
	for _, file := range []string{"sys/inside", "sys/dir/sibling"} {
		if text, err := f.ReadString(file); err != nil || text != "here" {
			t.Errorf("ReadString(%q) = %q, %v", file, text, err)
		}
	}
	if target, err := f.ReadLink("proc/1/fd/3"); err != nil || target != "/dev/null" {
		t.Errorf("the text of a link is always to be had, but got %q, %v", target, err)
	}
}

func TestFunctionAttributes(t *testing.T) {
	f := bound(t, nil)
	a := address(t, nic)
	if driver, err := f.Driver(a); err != nil || driver != "igb" {
		t.Errorf("driver is %q, %v", driver, err)
	}
	if override, err := f.DriverOverride(a); err != nil || override != "" {
		t.Errorf("driver_override is %q, %v", override, err)
	}
	if driver, override, err := f.Binding(a); err != nil || driver != "igb" || override != "" {
		t.Errorf("binding is %q, %q, %v", driver, override, err)
	}
	if config, err := f.ConfigSpace(a); err != nil || len(config) != 256 {
		t.Errorf("%d bytes of configuration space, %v", len(config), err)
	}
	if n, ok, err := f.GroupNumber(a); err != nil || !ok || n != 15 {
		t.Errorf("group is %d, %v, %v", n, ok, err)
	}
}

func TestFunctionWithout(t *testing.T) {
	f := bound(t, map[string]string{"driver": "", "iommu_group": "", "driver_override": "vfio-pci\n"})
	a := address(t, nic)
	if driver, err := f.Driver(a); err != nil || driver != "" {
		t.Errorf("driver is %q, %v; want none", driver, err)
	}
	if override, err := f.DriverOverride(a); err != nil || override != "vfio-pci" {
		t.Errorf("driver_override is %q, %v", override, err)
	}
	if driver, override, err := f.Binding(a); err != nil || driver != "" || override != "vfio-pci" {
		t.Errorf("binding is %q, %q, %v", driver, override, err)
	}
	if driver, override, err := bound(t, map[string]string{"driver_override": ""}).Binding(a); err != nil || driver != "igb" || override != "" {
		t.Errorf("binding without overrides is %q, %q, %v", driver, override, err)
	}
	if n, ok, err := f.GroupNumber(a); err != nil || ok {
		t.Errorf("group is %d, %v, %v; want none", n, ok, err)
	}
	odd := bound(t, map[string]string{"iommu_group": "-> ../somewhere"})
	if n, ok, err := odd.GroupNumber(a); err == nil {
		t.Errorf("group is %d, %v; want an error", n, ok)
	}
}

func TestFSWithoutFunction(t *testing.T) {
	f := bound(t, nil)
	a := address(t, "0000:3b:00.1")
	_, driverErr := f.Driver(a)
	_, overrideErr := f.DriverOverride(a)
	_, _, bindingErr := f.Binding(a)
	_, configErr := f.ConfigSpace(a)
	_, _, groupErr := f.GroupNumber(a)
	for _, err := range []error{driverErr, overrideErr, bindingErr, configErr, groupErr} {
		if !errors.Is(err, sysfs.ErrNoFunction) || !strings.Contains(err.Error(), "0000:3b:00.1") {
			t.Errorf("error %v: want ErrNoFunction with the address", err)
		}
	}
	// Without configuration space the function is there but can't be judged.
	if _, err := bound(t, map[string]string{"config": ""}).ConfigSpace(address(t, nic)); err == nil || errors.Is(err, sysfs.ErrNoFunction) {
		t.Errorf("error %v: want one that is not ErrNoFunction", err)
	}
}

func TestDir(t *testing.T) {
	f := bound(t, map[string]string{"net/eth0/mtu": "1500\n", "net/eth1/mtu": "9000\n"})
	d, err := f.OpenDir("sys/bus/pci/devices/" + nic)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if text, ok, err := d.Text("vendor"); err != nil || !ok || text != "0x8086" {
		t.Errorf("vendor is %q, %v, %v", text, ok, err)
	}
	if data, ok, err := d.Bytes("config"); err != nil || !ok || len(data) != 256 {
		t.Errorf("config has %d bytes, %v, %v", len(data), ok, err)
	}
	if target, ok, err := d.Link("driver"); err != nil || !ok || filepath.Base(target) != "igb" {
		t.Errorf("driver links to %q, %v, %v", target, ok, err)
	}
	if names, ok, err := d.List("net"); err != nil || !ok || !cmp.Equal(names, []string{"eth0", "eth1"}) {
		t.Errorf("net has %v, %v, %v", names, ok, err)
	}
	for range 2 { // the position in the directory is not the caller's concern
		if names, err := d.Names(); err != nil || len(names) != 6 {
			t.Errorf("%d names, %v; want 6", len(names), err)
		}
	}
	sub, ok, err := d.Sub("net")
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	defer sub.Close()
	if want := d.Path() + "/net"; sub.Path() != want {
		t.Errorf("path of net is %q, want %q", sub.Path(), want)
	}
}

func TestDirAbsent(t *testing.T) {
	d, err := bound(t, nil).OpenDir("sys/bus/pci/devices/" + nic)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	text, textOK, err1 := d.Text("numa_node")
	target, linkOK, err2 := d.Link("physfn")
	notLink, notLinkOK, err3 := d.Link("vendor")
	sub, subOK, err4 := d.Sub("net")
	names, listOK, err5 := d.List("net")
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		t.Error(err)
	}
	if textOK || linkOK || notLinkOK || subOK || listOK {
		t.Errorf("found %q, %q, %q, %v, %v", text, target, notLink, sub, names)
	}
}

func TestDirStaysInside(t *testing.T) {
	f := bound(t, map[string]string{"hosts": "-> /etc/hosts", "big": strings.Repeat("x", 8192)})
	d, err := f.OpenDir("sys/bus/pci/devices/" + nic)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for _, name := range []string{"hosts", "..", "../" + nic + "/vendor", "net/eth0", "", "big"} {
		if text, ok, err := d.Text(name); err == nil {
			t.Errorf("Text(%q) = %q, %v; want an error", name, text, ok)
		}
	}
	if sub, ok, err := d.Sub("driver"); err == nil {
		t.Errorf("a link was followed to %v, %v", sub, ok)
	}
	if sub, ok, err := d.Sub("vendor"); err == nil {
		t.Errorf("a file was opened as the directory %v, %v", sub, ok)
	}
}

// Whoever lists a function's directory and reads its attributes must not leak
// descriptors: a scan does it thousands of times.
func TestDescriptors(t *testing.T) {
	f := bound(t, map[string]string{"net/eth0/mtu": "1500\n"})
	before := descriptors(t)
	for range 10 {
		d, err := f.OpenDir("sys/bus/pci/devices/" + nic)
		if err != nil {
			t.Fatal(err)
		}
		_, _, err1 := d.Text("vendor")
		_, _, err2 := d.List("net")
		_, err3 := d.DriverOverride(address(t, nic))
		_, err4 := f.ReadDir("sys/bus/pci/devices")
		d.Close()
		if err := errors.Join(err1, err2, err3, err4); err != nil {
			t.Fatal(err)
		}
	}
	if after := descriptors(t); after > before {
		t.Errorf("%d descriptors are open, %d were before", after, before)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

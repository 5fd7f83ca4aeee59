package sysfstest_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/control"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

var _ control.Writer = (*sysfstest.Kernel)(nil)

const devices = "sys/bus/pci/devices/"

// addr parses an address.
func addr(t *testing.T, text string) pci.Address {
	t.Helper()
	a, err := pci.ParseAddress(text)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// A step is a write and the errno that it is answered with, nil for success.
type step struct {
	path, value string
	want        error
}

// take does the steps and stops at the first that is answered otherwise.
func take(t *testing.T, k *sysfstest.Kernel, steps ...step) {
	t.Helper()
	for _, s := range steps {
		err := k.Write(s.path, []byte(s.value))
		if !errors.Is(err, s.want) || err != nil && s.want == nil {
			t.Fatalf("write %q to %s: %v, want %v", s.value, s.path, err, s.want)
		}
	}
}

// read returns a file of the node without the newline at its end.
func read(t *testing.T, k *sysfstest.Kernel, name string) string {
	t.Helper()
	data, err := os.ReadFile(k.Path(name))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSuffix(string(data), "\n")
}

// driver returns the name of the function's driver, empty if there is none, and checks
// that the links say the same on both sides.
func driver(t *testing.T, k *sysfstest.Kernel, a pci.Address) string {
	t.Helper()
	target, err := os.Readlink(k.Path(devices + a.String() + "/driver"))
	if errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Base(target)
	if !exists(k, "sys/bus/pci/drivers/"+name+"/"+a.String()) {
		t.Errorf("%s links to %s, which does not link back", a, name)
	}
	if uevent := read(t, k, devices+a.String()+"/uevent"); !strings.HasPrefix(uevent, "DRIVER="+name+"\n") {
		t.Errorf("uevent of %s says %q, driver is %s", a, uevent, name)
	}
	return name
}

func wantDriver(t *testing.T, k *sysfstest.Kernel, a pci.Address, want string) {
	t.Helper()
	if got := driver(t, k, a); got != want {
		t.Errorf("driver of %s is %q, want %q", a, got, want)
	}
}

// exists reports whether the node has a file, links followed.
func exists(k *sysfstest.Kernel, name string) bool {
	_, err := os.Stat(k.Path(name))
	return err == nil
}

func wantFiles(t *testing.T, k *sysfstest.Kernel, there bool, names ...string) {
	t.Helper()
	for _, name := range names {
		if exists(k, name) != there {
			t.Errorf("%s: exists is %t, want %t", name, !there, there)
		}
	}
}

// toVFIO are the writes that bring a function from its driver to vfio-pci.
func toVFIO(a pci.Address, from string) []step {
	return []step{
		{path: devices + a.String() + "/driver_override", value: "vfio-pci"},
		{path: "sys/bus/pci/drivers/" + from + "/unbind", value: a.String()},
		{path: "sys/bus/pci/drivers_probe", value: a.String()},
	}
}

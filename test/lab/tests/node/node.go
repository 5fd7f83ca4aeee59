// Package node reads and writes the kernel's PCI files in guest tests, plainly: it is what the product is measured
// against, so it shares no code with it.
package node

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const devices = "/sys/bus/pci/devices"

// Path is a file of a function in sysfs.
func Path(address string, name ...string) string {
	return filepath.Join(append([]string{devices, address}, name...)...)
}

// Read returns a file's text, without white space around it.
func Read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// Write writes an existing file.
func Write(t *testing.T, path, text string) {
	t.Helper()
	if err := write(path, text); err != nil {
		t.Fatal(err)
	}
}

// write opens without O_CREATE: an attribute that does not exist is ENOENT then, as it should be.
func write(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// Driver is a function's kernel driver, or empty.
func Driver(t *testing.T, address string) string {
	t.Helper()
	return link(t, Path(address, "driver"))
}

// Group is a function's IOMMU group, or empty.
func Group(t *testing.T, address string) string {
	t.Helper()
	return link(t, Path(address, "iommu_group"))
}

func link(t *testing.T, path string) string {
	t.Helper()
	target, err := os.Readlink(path)
	if errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Base(target)
}

// Bind gives a function to a driver by driver_override, as long as the test runs: afterwards the override is
// cleared and the function probed again, which gives it back.
func Bind(t *testing.T, address, driver string) {
	t.Helper()
	before := Driver(t, address)
	Rebind(t, address, driver)
	if got := Driver(t, address); got != driver {
		t.Fatalf("%s is bound to %q after the probe, not to %s", address, got, driver)
	}
	t.Cleanup(func() {
		Rebind(t, address, "\n")
		if got := Driver(t, address); got != before {
			t.Errorf("%s is bound to %q after the test, not to %q", address, got, before)
		}
	})
}

// Rebind makes the kernel choose a function's driver again, under an override. The override "\n" means none.
func Rebind(t *testing.T, address, override string) {
	t.Helper()
	Write(t, Path(address, "driver_override"), override)
	if Driver(t, address) != "" {
		Write(t, Path(address, "driver/unbind"), address)
	}
	// A function that no driver wants is not an error of the write.
	Write(t, "/sys/bus/pci/drivers_probe", address)
}

// VFs makes a PF have n virtual functions, as long as the test runs.
func VFs(t *testing.T, pf string, n string) {
	t.Helper()
	Write(t, Path(pf, "sriov_numvfs"), n)
	t.Cleanup(func() { Write(t, Path(pf, "sriov_numvfs"), "0") })
}

// Interface is the name of a function's network interface.
func Interface(t *testing.T, address string) string {
	t.Helper()
	entries, err := os.ReadDir(Path(address, "net"))
	if err != nil || len(entries) != 1 {
		t.Fatalf("network interfaces of %s: %v, %v", address, entries, err)
	}
	return entries[0].Name()
}

// LinkUp brings a function's network interface up, waits for its carrier, and returns its name.
func LinkUp(t *testing.T, address string) string {
	t.Helper()
	name := Interface(t, address)
	out, err := exec.CommandContext(context.WithoutCancel(t.Context()), "ip", "link", "set", name, "up").CombinedOutput()
	if err != nil {
		t.Fatalf("bring %s up: %v: %s", name, err, out)
	}
	Eventually(t, name+" has a carrier", 30*time.Second, func() bool {
		return Read(t, filepath.Join("/sys/class/net", name, "carrier")) == "1"
	})
	return name
}

// CDev is the name of a function's VFIO device, like vfio0, or empty.
func CDev(t *testing.T, address string) string {
	t.Helper()
	entries, err := os.ReadDir(Path(address, "vfio-dev"))
	if errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	if err != nil || len(entries) != 1 {
		t.Fatalf("VFIO devices of %s: %v, %v", address, entries, err)
	}
	return entries[0].Name()
}

// Variant is the machine's VFIO variant: legacy or iommufd.
func Variant(t *testing.T) string {
	t.Helper()
	for word := range strings.FieldsSeq(Read(t, "/proc/cmdline")) {
		if variant, ok := strings.CutPrefix(word, "lab.vfio="); ok {
			return variant
		}
	}
	t.Fatal("no lab.vfio= on the kernel's command line: not a lab machine")
	return ""
}

// Eventually waits for a condition that the kernel brings about on its own time.
func Eventually(t *testing.T, what string, limit time.Duration, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !condition(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s", limit, what)
		}
	}
}

// VGPUs has a PF of igb become a GPU with n VFs for vGPUs, by the module labvgpu, as long as the test runs.
func VGPUs(t *testing.T, pf, n string) {
	t.Helper()
	modprobe := func(args ...string) {
		if out, err := exec.CommandContext(context.WithoutCancel(t.Context()), "modprobe", args...).CombinedOutput(); err != nil {
			t.Fatalf("modprobe %v: %v: %s", args, err, out)
		}
	}
	modprobe("labvgpu")
	t.Cleanup(func() { modprobe("-r", "labvgpu") })
	Bind(t, pf, "nvidia")
	VFs(t, pf, n)
}

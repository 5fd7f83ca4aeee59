package control_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/control"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

var _ control.Reader = (*sysfs.FS)(nil)

// node returns a scripted node, what reads it, and a control of it.
func node(t *testing.T) (*sysfstest.Kernel, *sysfs.FS, *control.Control) {
	t.Helper()
	k := sysfstest.New(t)
	fs, err := sysfs.Open(k.Root())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = fs.Close() })
	return k, fs, control.New(k, fs, 0)
}

func TestBindToVFIOAndBack(t *testing.T) {
	k, fs, c := node(t)
	gpu := k.AddGPU(0x3b)
	ctx := t.Context()
	steps := []struct {
		name   string
		do     func() error
		driver string
	}{
		{"override", func() error { return c.Write(ctx, control.DriverOverride(gpu, "vfio-pci")) }, "nvidia"},
		{"unbind", func() error { return c.Write(ctx, control.Unbind(gpu, "nvidia")) }, ""},
		{"probe", func() error { return c.Write(ctx, control.Probe(gpu)) }, "vfio-pci"},
		{"clear", func() error { return c.Write(ctx, control.DriverOverride(gpu, "")) }, "vfio-pci"},
		{"unbind again", func() error { return c.Write(ctx, control.Unbind(gpu, "vfio-pci")) }, ""},
		{"probe again", func() error { return c.Write(ctx, control.Probe(gpu)) }, "nvidia"},
	}
	for _, s := range steps {
		if err := s.do(); err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		if got, err := fs.Driver(gpu); err != nil || got != s.driver {
			t.Fatalf("after %s the driver is %q, %v; want %q", s.name, got, err, s.driver)
		}
	}
	if err := c.Write(ctx, control.Unbind(gpu, "vfio-pci")); !errors.Is(err, unix.ENODEV) {
		t.Errorf("unbind from a driver that does not have it: %v, want ENODEV", err)
	}
}

func TestResetByOneMethodOnly(t *testing.T) {
	k, fs, c := node(t)
	gpu := k.AddGPU(0x3b)
	// FLR turns out not to apply: the kernel would go on to the bus.
	k.OnReset(gpu, func(method string) (sysfstest.ResetEffect, error) {
		if method == "flr" {
			return 0, unix.ENOTTY
		}
		return sysfstest.ResetWorks, nil
	})
	if _, err := c.Reset(t.Context(), gpu, "flr", ""); !errors.Is(err, unix.ENOTTY) {
		t.Errorf("flr: %v, want ENOTTY", err)
	}
	if _, err := c.Reset(t.Context(), gpu, "bus", ""); err != nil {
		t.Errorf("bus: %v", err)
	}
	if _, err := c.Reset(t.Context(), gpu, "pm", ""); !errors.Is(err, unix.EINVAL) {
		t.Errorf("a method that is not offered: %v, want EINVAL", err)
	}
	var methods []string
	for _, r := range k.Resets() {
		methods = append(methods, r.Method)
	}
	if diff := cmp.Diff([]string{"flr", "bus"}, methods); diff != "" {
		t.Errorf("resets tried (-want +got):\n%s", diff)
	}
	if list, err := fs.ReadString("sys/bus/pci/devices/" + gpu.String() + "/reset_method"); err != nil || list != "flr bus" {
		t.Errorf("reset_method reads %q, %v afterwards", list, err)
	}
}

func TestResetOfWhatCantBeReset(t *testing.T) {
	k, _, c := node(t)
	_, audio := k.AddGPUWithAudio(0x3b, 15)
	for _, a := range []pci.Address{audio, {Bus: 0x99}} {
		if _, err := c.Reset(t.Context(), a, "flr", ""); !errors.Is(err, unix.ENOENT) {
			t.Errorf("reset of %s: %v, want ENOENT", a, err)
		}
	}
}

func TestVFs(t *testing.T) {
	k, fs, c := node(t)
	pf, _ := k.AddNIC(0x45, 0)
	if err := c.Write(t.Context(), control.Autoprobe(pf, false)); err != nil {
		t.Fatal(err)
	}
	if err := c.Write(t.Context(), control.NumVFs(pf, 3)); err != nil {
		t.Fatal(err)
	}
	vfs := k.VFs(pf)
	if len(vfs) != 3 {
		t.Fatalf("VFs are %v, want three", vfs)
	}
	if driver, err := fs.Driver(vfs[0]); err != nil || driver != "" {
		t.Errorf("driver of a VF is %q, %v; want none without autoprobe", driver, err)
	}
	for n, want := range map[int]error{4: unix.EBUSY, 9: unix.ERANGE, 3: nil} {
		if err := c.Write(t.Context(), control.NumVFs(pf, n)); !errors.Is(err, want) {
			t.Errorf("%d VFs: %v, want %v", n, err, want)
		}
	}
	if err := c.Write(t.Context(), control.NumVFs(pf, 0)); err != nil || len(k.VFs(pf)) > 0 {
		t.Errorf("disable: %v, VFs left: %v", err, k.VFs(pf))
	}
}

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// withVM is a node with a VM of sandbox s1.
func withVM(t *testing.T, devices ...device) node {
	t.Helper()
	dir := t.TempDir()
	n := node{vms: filepath.Join(dir, "vms"), sys: filepath.Join(dir, "sys")}
	if err := n.vm("s1").make(devices, nil); err != nil {
		t.Fatal(err)
	}
	return n
}

// container is a container's spec in sandbox s1, with devices and the permission to use them.
func container(devices ...device) *specs.Spec {
	spec := &specs.Spec{
		Annotations: map[string]string{containerType: "container", sandboxID: "s1"},
		Mounts:      []specs.Mount{{Destination: "/proc", Type: "proc", Source: "proc"}},
		Linux: &specs.Linux{Resources: &specs.LinuxResources{
			Devices: []specs.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}},
		}},
	}
	for _, d := range devices {
		spec.Linux.Devices = append(spec.Linux.Devices, specs.LinuxDevice{Path: d.Path, Type: "c", Major: d.Major, Minor: d.Minor})
		spec.Linux.Resources.Devices = append(spec.Linux.Resources.Devices,
			specs.LinuxDeviceCgroup{Allow: true, Type: "c", Major: new(d.Major), Minor: new(d.Minor), Access: "rw"})
	}
	return spec
}

func TestFitTakesOutWhatTheVMHas(t *testing.T) {
	renamed := device{Path: "/dev/gpu", Major: cdev0.Major, Minor: cdev0.Minor}
	for name, test := range map[string]struct{ vm, before, after []device }{
		"no devices anywhere":                 {nil, nil, nil},
		"the VM's device":                     {[]device{cdev0}, []device{cdev0}, nil},
		"a pod's other container has it":      {[]device{cdev0, cdev1}, []device{cdev1}, nil},
		"another device stays":                {[]device{cdev0}, []device{null, cdev0}, []device{null}},
		"the control node stays":              {[]device{group15}, []device{control, group15}, []device{control}},
		"by number, whatever the path":        {[]device{cdev0}, []device{renamed}, nil},
		"the same minor of another major":     {[]device{{"/dev/vfio/3", 511, 3}}, []device{null}, []device{null}},
		"the same major with another minor":   {[]device{{"/dev/vfio/1", 1, 5}}, []device{null}, []device{null}},
		"a VM without devices, and no device": {nil, []device{null}, []device{null}},
	} {
		t.Run(name, func(t *testing.T) {
			n := withVM(t, test.vm...)
			got, want := container(test.before...), container(test.after...)
			want.Mounts = append(want.Mounts, specs.Mount{
				Destination: "/vm", Type: "bind", Source: filepath.Join(n.vms, "s1"), Options: []string{"rbind", "ro"},
			})
			if err := n.fit(got); err != nil {
				t.Fatal(err)
			}
			if len(got.Linux.Devices) == 0 {
				got.Linux.Devices = nil // as it is in a file
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("spec (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFitKeepsARuleAgainstTheVMsDevice(t *testing.T) {
	n, spec := withVM(t, cdev0), container()
	deny := specs.LinuxDeviceCgroup{Allow: false, Type: "c", Major: new(cdev0.Major), Minor: new(cdev0.Minor), Access: "rwm"}
	every := specs.LinuxDeviceCgroup{Allow: true, Type: "c", Major: new(cdev0.Major), Access: "m"}
	spec.Linux.Resources.Devices = append(spec.Linux.Resources.Devices, deny, every)
	if err := n.fit(spec); err != nil {
		t.Fatal(err)
	}
	want := []specs.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}, deny, every}
	if diff := cmp.Diff(want, spec.Linux.Resources.Devices); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
}

func TestFitNeedsNoLinuxPart(t *testing.T) {
	for name, linux := range map[string]*specs.Linux{"none": nil, "without resources": {}} {
		t.Run(name, func(t *testing.T) {
			n, spec := withVM(t, cdev0), container()
			spec.Linux = linux
			if err := n.fit(spec); err != nil || len(spec.Mounts) != 2 {
				t.Errorf("fit: %v, mounts %v; want the one of /vm added", err, spec.Mounts)
			}
		})
	}
}

// TestFitRefusesAsKataDoes: the message is Kata's, with the function's address where sysfs tells it.
func TestFitRefusesAsKataDoes(t *testing.T) {
	const refusal = "cold_plug_vfio= or hot_plug_vfio= port is not set for device "
	n := withVM(t, cdev0)
	class := filepath.Join(n.sys, "dev/char/510:1")
	group := filepath.Join(n.sys, "kernel/iommu_groups/15/devices/0000:65:00.0")
	for _, dir := range []string{class, group} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../../../0000:3b:00.0", filepath.Join(class, "device")); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		device device
		want   string
	}{
		"a cdev":                          {cdev1, "0000:3b:00.0"},
		"a group":                         {group15, "0000:65:00.0"},
		"a node that sysfs has not":       {device{"/dev/vfio/77", 511, 77}, "/dev/vfio/77"},
		"the path of one that the VM has": {device{cdev0.Path, 511, 77}, cdev0.Path},
	} {
		t.Run(name, func(t *testing.T) {
			got := container(cdev0, test.device)
			err := n.fit(got)
			if err == nil || err.Error() != refusal+test.want {
				t.Errorf("fit: %v; want %q", err, refusal+test.want)
			}
			if diff := cmp.Diff(container(cdev0, test.device), got); diff != "" {
				t.Errorf("a refused container was changed (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFitRefusesAContainerWithoutAVM(t *testing.T) {
	n := withVM(t, cdev0)
	for _, sandbox := range []string{"s2", ""} {
		spec := container()
		spec.Annotations[sandboxID] = sandbox
		if err := n.fit(spec); err == nil {
			t.Errorf("a container of sandbox %q, which has no VM, fits", sandbox)
		}
	}
}

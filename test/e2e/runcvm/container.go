package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// reportDir is where a container sees its VM's directory.
const reportDir = "/vm"

// fit fits a container to the VM of its sandbox: it removes the VFIO nodes that the VM has from the container's spec, and fails
// if the VM lacks one.
func (n node) fit(spec *specs.Spec) error {
	sandbox := spec.Annotations[sandboxID]
	v := n.vm(sandbox)
	given, err := v.devices()
	if err != nil {
		return fmt.Errorf("find the VM of sandbox %q: %w", sandbox, err)
	}
	for _, d := range devicesOf(spec) {
		if isVFIO(d.Path) && !has(given, d.Major, d.Minor) {
			return fmt.Errorf("cold_plug_vfio= or hot_plug_vfio= port is not set for device %s", n.function(d))
		}
	}
	strip(spec.Linux, given)
	spec.Mounts = append(spec.Mounts, specs.Mount{
		Destination: reportDir, Type: "bind", Source: v.dir, Options: []string{"rbind", "ro"},
	})
	return nil
}

// strip takes the VM's devices and the permissions to use them away from the container: it would run in the VM.
func strip(linux *specs.Linux, given []device) {
	if linux == nil {
		return
	}
	linux.Devices = slices.DeleteFunc(linux.Devices, func(d specs.LinuxDevice) bool { return has(given, d.Major, d.Minor) })
	if linux.Resources == nil {
		return
	}
	linux.Resources.Devices = slices.DeleteFunc(linux.Resources.Devices, func(r specs.LinuxDeviceCgroup) bool {
		return r.Allow && r.Major != nil && r.Minor != nil && has(given, *r.Major, *r.Minor)
	})
}

// has compares devices by their numbers, as Kata does, because anybody can choose the path in a container.
func has(given []device, major, minor int64) bool {
	return slices.ContainsFunc(given, func(d device) bool { return d.Major == major && d.Minor == minor })
}

// function is the PCI address behind a VFIO node, or the node's path where sysfs does not tell.
func (n node) function(d specs.LinuxDevice) string {
	class := filepath.Join(n.sys, "dev/char", fmt.Sprintf("%d:%d", d.Major, d.Minor))
	if address, err := os.Readlink(filepath.Join(class, "device")); err == nil {
		return filepath.Base(address)
	}
	members, err := os.ReadDir(filepath.Join(n.sys, "kernel/iommu_groups", filepath.Base(d.Path), "devices"))
	if err != nil || len(members) == 0 {
		return d.Path
	}
	return members[0].Name()
}

package vfio

import (
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// NVIDIA's nodes are made by NVIDIA's tools, not by the kernel, so a container may have nodes that the node's /dev does
// not. Their device numbers are in /proc/devices.
const (
	nvidiaPrefix  = "/dev/nvidia"
	nvidiaCaps    = "/dev/nvidia-caps/"
	minorModeset  = 254 // kernel-open/common/inc/nv-chardev-numbers.h
	minorControl  = 255
	minorUVM      = 0
	minorUVMTools = 1
)

// driverParts returns the major numbers of character devices by the name in
// /proc/devices; nil unless one of the nodes is NVIDIA's.
func driverParts(fsys *sysfs.FS, nodes []string) (map[string]uint32, error) {
	isNVIDIA := func(node string) bool { return strings.HasPrefix(node, nvidiaPrefix) }
	if !slices.ContainsFunc(nodes, isNVIDIA) {
		return nil, nil
	}
	parts, err := characterMajors(fsys)
	if sysfs.Vanished(err) {
		return nil, nil // a captured tree without it
	}
	return parts, err
}

// characterMajors returns the major numbers of character devices by the name in /proc/devices.
func characterMajors(fsys *sysfs.FS) (map[string]uint32, error) {
	text, err := fsys.ReadString("proc/devices")
	if err != nil {
		return nil, err
	}
	// Block devices have numbers of their own, and the same names can occur there.
	text, _, _ = strings.Cut(text, "Block devices:")
	parts := map[string]uint32{}
	for line := range strings.Lines(text) {
		if fields := strings.Fields(line); len(fields) == 2 {
			if major, err := strconv.ParseUint(fields[0], 10, 32); err == nil {
				parts[fields[1]] = uint32(major)
			}
		}
	}
	return parts, nil
}

// addShared enters the device number of a shared node of NVIDIA's driver, which a container may have at any path. It returns
// false if the node is not one of them, or if its part of the driver is not loaded.
func (s *search) addShared(node string, parts map[string]uint32) bool {
	names, minor, ok := splitNode(node)
	if !ok {
		return false
	}
	found := false
	for _, name := range names {
		major, ok := parts[name]
		switch {
		case !ok:
			continue
		case node == nvidiaCaps:
			s.majors[major] = node
		default:
			s.numbers[number{kind: unix.S_IFCHR, major: major, minor: minor}] = node
		}
		found = true
	}
	return found
}

// splitNode returns the parts of the driver that may have a node, and its minor number.
func splitNode(node string) (parts []string, minor uint32, ok bool) {
	frontend := []string{"nvidia", "nvidia-frontend"}
	switch node {
	case "/dev/nvidiactl":
		return append(frontend, "nvidiactl"), minorControl, true
	case "/dev/nvidia-modeset":
		return append(frontend, "nvidia-modeset"), minorModeset, true
	case "/dev/nvidia-uvm":
		return []string{"nvidia-uvm"}, minorUVM, true
	case "/dev/nvidia-uvm-tools":
		return []string{"nvidia-uvm"}, minorUVMTools, true
	case nvidiaCaps:
		return []string{"nvidia-caps"}, 0, true
	}
	n, err := strconv.ParseUint(strings.TrimPrefix(node, nvidiaPrefix), 10, 8)
	return frontend, uint32(n), err == nil && strings.HasPrefix(node, nvidiaPrefix)
}

package vfio

import (
	"slices"
	"strconv"

	"github.com/kata-vfio/kata-vfio/pkg/device"
)

// GroupNode returns the path of an IOMMU group's device node, "/dev/vfio/15".
// It exists while a VFIO driver has a function of the group.
func GroupNode(group int) string { return "/dev/vfio/" + strconv.Itoa(group) }

// NoIOMMUNode returns the node of a group without an IOMMU (drivers/vfio/group.c).
func NoIOMMUNode(group int) string { return "/dev/vfio/noiommu-" + strconv.Itoa(group) }

// DeviceNode returns the path of a function's own VFIO node, given its name in
// vfio-dev: "/dev/vfio/devices/vfio3".
func DeviceNode(vfioN string) string { return "/dev/vfio/devices/" + vfioN }

// Nodes returns every node below /dev through which a process can hold f, sorted: those of its host driver and its
// subsystems, and those of VFIO. The group's nodes are always among them, because a group is held as a whole. So are
// the nodes that a driver has for all its functions (see [device.SharedNodes]).
func Nodes(f *device.Function) []string {
	c := &f.Children
	var nodes []string
	if f.VF == nil || !f.OnVFIO() { // the nodes of a vGPU's driver are the host's way to the GPU, not to the vGPU
		nodes = device.SharedNodes(f.Driver)
	}
	for _, name := range slices.Concat(c.Nodes, c.NVMe, c.Block) {
		nodes = append(nodes, "/dev/"+name)
	}
	for _, name := range c.DRM {
		nodes = append(nodes, "/dev/dri/"+name)
	}
	if c.VFIO != "" {
		nodes = append(nodes, DeviceNode(c.VFIO))
	}
	if f.Group != nil {
		nodes = append(nodes, GroupNode(*f.Group), NoIOMMUNode(*f.Group))
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

package inventory

import (
	"slices"
	"strconv"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// readChildren reads the devices that the kernel's subsystems created directly below the function's directory. Devices that are deeper in
// the tree are found from the kernel's lists: see scan.adopt.
func readChildren(f *device.Function, a *attributes) {
	c := &f.Children
	c.VFIO, c.Served = readVFIO(a)
	if device.IsVFIO(f.Driver) { // a VFIO driver creates nothing else
		return
	}
	readNet(f, a)
	c.RDMA = a.list("infiniband")
	if f.Class.Base() != pci.BaseNetwork { // thousands of VFs, which are neither displays nor drives
		c.DRM = readDRM(a)
		c.NVMe = a.list("nvme")
	}
	for _, controller := range c.NVMe {
		c.Block = append(c.Block, namespaces(a, controller)...)
	}
	if strings.HasPrefix(f.Driver, "virtio") {
		readVirtio(f, a)
	}
}

// readNet reads the netdevs, and those of their uses that only their directories show: the devices stacked on them, and whether a netdev is
// in another network namespace. sysfs lists a netdev only in its own namespace, but the directory stays while a netdev exists in any
// namespace.
func readNet(f *device.Function, a *attributes) {
	net := a.sub("net")
	defer net.close()
	names := net.names()
	if net.usable() && len(names) == 0 {
		f.Uses = append(f.Uses, device.Use{Kind: device.UseNamespace})
	}
	f.Children.Net = append(f.Children.Net, names...)
	for _, name := range names {
		netdev := net.sub(name)
		f.Uses = append(f.Uses, masters(name, uppers(netdev))...)
		if speed := portSpeed(f, netdev); speed > f.PortSpeed || speed == unknownSpeed && f.PortSpeed == 0 {
			f.PortSpeed = speed
		}
		netdev.close()
	}
}

// unknownSpeed is the speed of a port that could not be read. See scan.recall.
const unknownSpeed = -1

// portSpeed returns an interface's speed in Mbit/s. The kernel answers EINVAL, -1 or the largest unsigned number where there is no
// link (net/core/net-sysfs.c, speed_show). A VF's interface is not asked: its port is its PF's. While an operation on some
// interface hangs in the kernel, the speed is unknownSpeed.
func portSpeed(f *device.Function, netdev *attributes) int {
	if f.VF != nil {
		return 0
	}
	text, ok := netdev.underRTNL("speed")
	if !ok {
		return unknownSpeed
	}
	speed, err := strconv.ParseInt(text, 10, 32)
	if err != nil || speed < 0 {
		return 0
	}
	return int(speed)
}

// uppers returns the netdevs that are stacked right on one: its bond, bridge
// or team, its VLANs (net/core/dev.c netdev_adjacent_sysfs_add).
func uppers(netdev *attributes) []string {
	var uppers []string
	for _, name := range netdev.names() {
		if name == "master" {
			name = "upper_" + netdev.link(name)
		}
		if upper, ok := strings.CutPrefix(name, "upper_"); ok && upper != "" {
			uppers = append(uppers, upper)
		}
	}
	return sorted(uppers)
}

// uppersAt returns the upper devices of the netdev at a path, none if it no longer exists.
func uppersAt(fs *sysfs.FS, where string) ([]string, error) {
	dir, err := fs.OpenDir(where)
	if err != nil {
		if sysfs.Vanished(err) {
			return nil, nil
		}
		return nil, err
	}
	defer dir.Close()
	a := &attributes{dir: dir}
	return uppers(a), a.err
}

// masters returns the uppers of a netdev as uses.
func masters(netdev string, uppers []string) []device.Use {
	uses := make([]device.Use, len(uppers))
	for i, upper := range uppers {
		uses[i] = device.Use{Kind: device.UseMaster, Name: netdev, Detail: upper}
	}
	return uses
}

// readDRM lists the DRM minors; their connectors and the like are below them.
func readDRM(a *attributes) []string {
	names := a.list("drm")
	return slices.DeleteFunc(names, func(name string) bool {
		return !strings.HasPrefix(name, "card") && !strings.HasPrefix(name, "renderD")
	})
}

// namespaces lists the block devices right below an NVMe controller. With
// native multipath the usable ones are elsewhere; see blockOwners.
func namespaces(a *attributes, controller string) []string {
	nvme := a.sub("nvme")
	defer nvme.close()
	names := nvme.list(controller)
	return slices.DeleteFunc(names, func(name string) bool { return !isNamespace(name) })
}

// isNamespace reports whether a name is an NVMe namespace's ("nvme0n1"), and
// not that of one path to it ("nvme0c1n1") or of its character device ("ng0n1").
func isNamespace(name string) bool {
	rest, ok := strings.CutPrefix(name, "nvme")
	controller, namespace, ok2 := strings.Cut(rest, "n")
	return ok && ok2 && isNumber(controller) && isNumber(namespace)
}

func isNumber(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

// readVFIO returns the name of the VFIO device that has a node, and whether there is a VFIO device. The kernel makes the directory
// in any case, and the device number only if it has the cdev interface.
func readVFIO(a *attributes) (name string, served bool) {
	class := a.sub("vfio-dev")
	defer class.close()
	names := class.names()
	if len(names) != 1 {
		return "", false
	}
	dev := class.sub(names[0])
	defer dev.close()
	if _, ok := dev.text("dev"); !ok {
		return "", true
	}
	return names[0], true
}

// readVirtio reads the netdevs and disks of a virtio function, which are below its virtio device.
func readVirtio(f *device.Function, a *attributes) {
	names := a.names()
	for _, name := range names {
		if n, ok := strings.CutPrefix(name, "virtio"); !ok || !isNumber(n) {
			continue
		}
		virtio := a.sub(name)
		readNet(f, virtio)
		disks := virtio.list("block")
		f.Children.Block = append(f.Children.Block, disks...)
		virtio.close()
	}
}

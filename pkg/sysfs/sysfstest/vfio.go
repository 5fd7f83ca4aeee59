package sysfstest

import (
	"fmt"
	"path"
	"strconv"
	"strings"
)

// Number is a device node's number.
type Number struct{ Major, Minor int }

// String returns "major:minor", as in sysfs' dev attributes.
func (n Number) String() string { return fmt.Sprintf("%d:%d", n.Major, n.Minor) }

// Majors of device nodes. The kernel allots those of VFIO as it comes; here
// they are always the same.
const (
	majorMisc   = 10
	majorNVIDIA = 195
	majorDRM    = 226
	majorGroup  = 235
	majorNVMe   = 240
	majorBlock  = 259
	majorVFIO   = 511
)

// Node returns the number of a device node, "/dev/vfio/15", false if there is
// none.
func (k *Kernel) Node(name string) (Number, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	n, ok := k.nodes[name]
	return n, ok
}

// makeNode creates a device node and its files in sysfs: the device's dev and uevent attributes and the link from
// sys/dev. Callers hold mu.
func (k *Kernel) makeNode(node string, n Number, device string) {
	name := strings.TrimPrefix(node, "/")
	k.nodes[node] = n
	k.put(name, "", 0o600)
	k.create(path.Join(device, "dev"), n.String()+"\n", readOnly)
	k.create(path.Join(device, "uevent"), fmt.Sprintf("MAJOR=%d\nMINOR=%d\nDEVNAME=%s\n",
		n.Major, n.Minor, strings.TrimPrefix(name, "dev/")), readWrite)
	k.link(n.link(), device)
}

// link returns where sys/dev leads from the number to the device.
func (n Number) link() string {
	kind := "char"
	if n.Major == majorBlock {
		kind = "block"
	}
	return path.Join("sys/dev", kind, n.String())
}

// dropNode removes a device node. Its holders keep it open, and proc shows "(deleted)" after the name. Callers hold mu.
func (k *Kernel) dropNode(node string) {
	n, ok := k.nodes[node]
	if !ok {
		return
	}
	delete(k.nodes, node)
	k.remove(n.link())
	k.remove(strings.TrimPrefix(node, "/"))
	for _, h := range k.holders {
		if h.Node == node && !h.unseen {
			k.remove(h.fd())
			k.symlink(h.fd(), node+" (deleted)")
		}
	}
}

// A vfioDevice is a VFIO driver's device for a function.
type vfioDevice struct {
	name string // vfio3
	open bool   // until the device is unregistered
}

// node returns the name of the group's device node.
func (g *group) node() string {
	if g.noIOMMU {
		return "/dev/vfio/noiommu-" + strconv.Itoa(g.number)
	}
	return "/dev/vfio/" + strconv.Itoa(g.number)
}

func (d *vfioDevice) node() string { return "/dev/vfio/devices/" + d.name }

// openVFIO makes the group's node for its first member, and the function's own
// device (drivers/vfio/vfio_main.c __vfio_register_dev). Callers hold mu.
func (k *Kernel) openVFIO(f *function) {
	if f.group == nil {
		k.makeNoIOMMU(f)
	}
	f.group.drivers++
	if f.group.drivers == 1 {
		k.makeGroupNode(f.group)
	}
	name, n := k.free("vfio", 0)
	f.vfio = &vfioDevice{name: name, open: true}
	dir := path.Join(f.dir, "vfio-dev", name)
	k.mkdir(dir)
	k.link(path.Join("sys/class/vfio-dev", name), dir)
	if k.host.iommufd && !f.group.noIOMMU {
		k.makeNode(f.vfio.node(), Number{majorVFIO, n}, dir)
	}
	k.say("add", dir, "vfio-dev")
}

// makeNoIOMMU makes up a group for a function that has none (drivers/vfio/group.c
// vfio_noiommu_group_alloc). Callers hold mu.
func (k *Kernel) makeNoIOMMU(f *function) {
	n := k.freeGroup()
	k.enter(f, n)
	g := k.groups[n]
	g.kind, g.reserved, g.noIOMMU = "unknown", nil, true
	k.showGroup(g)
}

// makeGroupNode makes /dev/vfio/<group>. Callers hold mu.
func (k *Kernel) makeGroupNode(g *group) {
	name := path.Base(g.node())
	dir := path.Join("sys/devices/virtual/vfio", name)
	k.mkdir(dir)
	k.link(path.Join("sys/class/vfio", name), dir)
	k.makeNode(g.node(), Number{majorGroup, g.number}, dir)
	k.say("add", dir, "vfio")
}

// closeVFIO unregisters the function's own device, the first half of a VFIO
// driver's remove function (drivers/vfio/vfio_main.c vfio_unregister_group_dev).
// Callers hold mu.
func (k *Kernel) closeVFIO(f *function) {
	if f.vfio == nil || !f.vfio.open {
		return
	}
	f.vfio.open = false
	k.dropNode(f.vfio.node())
	k.remove(path.Join("sys/class/vfio-dev", f.vfio.name))
	k.remove(path.Join(f.dir, "vfio-dev"))
	k.say("remove", path.Join(f.dir, "vfio-dev", f.vfio.name), "vfio-dev")
}

// leaveVFIOGroup is the second half, after the wait for holders: the group's
// node goes with its last member. Callers hold mu.
func (k *Kernel) leaveVFIOGroup(f *function) {
	if f.vfio == nil {
		return
	}
	k.giveBack(f.vfio.name)
	f.vfio = nil
	g := f.group
	g.drivers--
	if g.drivers == 0 {
		name := path.Base(g.node())
		k.dropNode(g.node())
		k.remove(path.Join("sys/class/vfio", name))
		k.remove(path.Join("sys/devices/virtual/vfio", name))
		k.say("remove", path.Join("sys/devices/virtual/vfio", name), "vfio")
	}
	if g.noIOMMU {
		k.leave(f)
	}
}

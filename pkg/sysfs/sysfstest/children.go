package sysfstest

import (
	"fmt"
	"path"
	"slices"
	"strconv"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// A child is the device of a kernel subsystem for a function's driver.
type child struct {
	name  string   // in Kernel.taken
	class string   // whose uevents announce it; empty if there is none
	paths []string // the files of the child, links first
	nodes []string
}

// makeChildren makes the children of the function's class under a host driver.
// Callers hold mu.
func (k *Kernel) makeChildren(f *function) {
	if f.driver.NoChildren {
		return
	}
	switch {
	case f.Class.Base() == pci.BaseNetwork:
		k.makeNetdev(f)
	case f.Class.Base() == pci.BaseDisplay:
		k.makeDRM(f)
		if f.driver.name == "nvidia" {
			k.makeNVIDIA(f)
		}
	case f.Class.Sub() == pci.ClassNVMe:
		k.makeNVMe(f)
	}
	if f.driver.Infiniband != "" {
		name, _ := k.free(f.driver.Infiniband, 0)
		k.makeChild(f, "infiniband", name)
		k.create(path.Join(f.dir, "infiniband", name, "node_guid"), fmt.Sprintf("0002:c903:%02x%02x:%02x00\n", f.Address.Bus, f.Address.Device, f.Address.Function), readOnly)
	}
}

// dropChildren undoes makeChildren. Callers hold mu.
func (k *Kernel) dropChildren(f *function) {
	for _, c := range f.children {
		k.giveBack(c.name)
		if c.class != "" {
			k.say("remove", path.Join(f.dir, c.class, c.name), c.class)
		}
		for _, p := range c.paths {
			k.remove(p)
		}
		for _, n := range c.nodes {
			k.dropNode(n)
		}
	}
	f.children = nil
	if len(k.host.addresses) > 0 {
		k.showNetwork()
	}
}

// makeChild makes <function>/<class>/<name> with its links, and returns where
// it is. Callers hold mu.
func (k *Kernel) makeChild(f *function, class, name string) *child {
	dir := path.Join(f.dir, class, name)
	inClass := path.Join("sys/class", class, name)
	k.mkdir(dir)
	k.link(inClass, dir)
	k.link(path.Join(dir, "subsystem"), path.Join("sys/class", class))
	k.link(path.Join(dir, "device"), f.dir)
	k.say("add", dir, class)
	f.children = append(f.children, child{name: name, class: class, paths: []string{inClass, path.Join(f.dir, class)}})
	return &f.children[len(f.children)-1]
}

func (k *Kernel) makeNetdev(f *function) {
	name, n := k.free("eth", 0)
	k.makeChild(f, "net", name)
	dir := path.Join(f.dir, "net", name)
	a, kind := f.Address, "1\n"
	address := fmt.Sprintf("52:54:00:%02x:%02x:%02x\n", a.Bus, a.Device, a.Function)
	if f.Class.Sub() == pci.ClassInfiniBand { // a queue pair's number, a subnet's prefix and a port's GUID
		kind, address = "32\n", fmt.Sprintf("00:00:01:27:fe:80:00:00:00:00:00:00:00:02:c9:03:%02x:%02x:%02x:01\n", a.Bus, a.Device, a.Function)
	}
	k.create(path.Join(dir, "address"), address, readOnly)
	k.create(path.Join(dir, "ifindex"), fmt.Sprintln(n+2), readOnly)
	k.create(path.Join(dir, "operstate"), "down\n", readOnly)
	k.create(path.Join(dir, "type"), kind, readOnly)
	if len(k.host.addresses) > 0 {
		k.showNetwork()
	}
}

// makeDRM makes a card and a render node. Minors from 128 on are the render
// nodes'; a node with more cards than that gives the rest minors far above.
func (k *Kernel) makeDRM(f *function) {
	name, n := k.free("card", 0)
	if n >= 64 {
		n += 1 << 16
	}
	k.makeDRMNode(f, name, n)
	name, n = k.free("renderD", 128)
	k.makeDRMNode(f, name, n)
}

func (k *Kernel) makeDRMNode(f *function, name string, minor int) {
	node := "/dev/dri/" + name
	c := k.makeChild(f, "drm", name)
	c.nodes = append(c.nodes, node)
	k.makeNode(node, Number{majorDRM, minor}, path.Join(f.dir, "drm", name))
}

// makeNVIDIA makes the files of the nvidia driver besides DRM: a node that
// sysfs does not know, and a file in proc that does.
func (k *Kernel) makeNVIDIA(f *function) {
	name, n := k.free("nvidia", 0)
	dir := path.Join("proc/driver/nvidia/gpus", f.Address.String())
	node := "/dev/" + name
	k.put(path.Join(dir, "information"), fmt.Sprintf("Model: \t\t NVIDIA\nBus Location: \t %s\nDevice Minor: \t %d\n", f.Address, n), readOnly)
	k.nodes[node] = Number{majorNVIDIA, n}
	k.put(node[1:], "", 0o600)
	f.children = append(f.children, child{name: name, paths: []string{dir}, nodes: []string{node}})
}

// makeNVMe makes a controller with one namespace that has one partition.
func (k *Kernel) makeNVMe(f *function) {
	name, n := k.free("nvme", 0)
	c := k.makeChild(f, "nvme", name)
	dir := path.Join(f.dir, "nvme", name)
	k.makeNode("/dev/"+name, Number{majorNVMe, n}, dir)
	disk, partition := name+"n1", name+"n1p1"
	k.makeBlock(disk, path.Join(dir, disk), Number{majorBlock, 2 * n})
	k.makeBlock(partition, path.Join(dir, disk, partition), Number{majorBlock, 2*n + 1})
	k.put(path.Join(dir, disk, partition, "partition"), "1\n", readOnly)
	k.link(path.Join("sys/block", disk), path.Join(dir, disk))
	c.paths = slices.Insert(c.paths, 0, path.Join("sys/block", disk),
		path.Join("sys/class/block", disk), path.Join("sys/class/block", partition))
	c.nodes = append(c.nodes, "/dev/"+name, "/dev/"+disk, "/dev/"+partition)
}

// makeBlock makes a block device at dir.
func (k *Kernel) makeBlock(name, dir string, n Number) {
	k.mkdir(path.Join(dir, "holders"))
	k.put(path.Join(dir, "size"), strconv.Itoa(1<<21)+"\n", readOnly)
	k.link(path.Join("sys/class/block", name), dir)
	k.link(path.Join(dir, "subsystem"), "sys/class/block")
	k.makeNode("/dev/"+name, n, dir)
}

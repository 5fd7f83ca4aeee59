package sysfstest

import (
	"path"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// Numbers of the nodes that NVIDIA's driver has for all GPUs. Those of uvm and caps
// are allotted as it comes.
const (
	majorUVM  = 508
	majorCaps = 234
)

// AddNVIDIANodes makes the nodes by which processes use all GPUs of NVIDIA's driver,
// as its tools do, and what /proc/devices says of them.
func (k *Kernel) AddNVIDIANodes() {
	k.build(func() {
		for node, n := range map[string]Number{
			"/dev/nvidiactl":               {majorNVIDIA, 255},
			"/dev/nvidia-modeset":          {majorNVIDIA, 254},
			"/dev/nvidia-uvm":              {majorUVM, 0},
			"/dev/nvidia-uvm-tools":        {majorUVM, 1},
			"/dev/nvidia-caps/nvidia-cap1": {majorCaps, 1},
			"/dev/nvidia-caps/nvidia-cap2": {majorCaps, 2},
		} {
			k.nodes[node] = n
			k.put(node[1:], "", 0o600)
		}
		k.put("proc/devices", "Character devices:\n  1 mem\n195 nvidia\n234 nvidia-caps\n508 nvidia-uvm\n\nBlock devices:\n  8 sd\n", readOnly)
	})
}

// SetNVIDIAModeset loads nvidia_drm with modeset on or off: on, the GPUs with a display
// engine that NVIDIA's driver has by then get a connector.
func (k *Kernel) SetNVIDIAModeset(on bool) {
	text := "N\n"
	if on {
		text = "Y\n"
	}
	k.build(func() {
		k.put("sys/module/nvidia_drm/parameters/modeset", text, 0o400)
		for _, f := range k.functions {
			if f.driver != nil && f.driver.name == "nvidia" && f.Class.Sub() == pci.ClassVGA {
				k.setConnector(f, on)
			}
		}
	})
}

// setConnector adds a connector to a function's card, or removes it.
func (k *Kernel) setConnector(f *function, there bool) {
	for i := range f.children {
		c := &f.children[i]
		if !strings.HasPrefix(c.name, "card") {
			continue
		}
		name := c.name + "-DP-1"
		class, dir := path.Join("sys/class/drm", name), path.Join(f.dir, "drm", c.name, name)
		k.remove(class)
		k.remove(dir)
		if !there {
			continue
		}
		k.mkdir(dir)
		k.link(class, dir)
		c.paths = slices.Insert(c.paths, 0, class)
	}
}

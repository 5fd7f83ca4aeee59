// Package topology describes the PCI hierarchy of a lab machine as values, renders it as QEMU's arguments, and says
// which address each function gets. It runs nothing, so tests in the machine can use its names as well.
package topology

import (
	"fmt"
	"strings"
)

// Topology is a machine's PCI hierarchy, besides the few devices on its first bus that every lab machine has.
type Topology struct {
	Roots []Root
	// Backends are QEMU arguments for what devices refer to: networks, NVMe subsystems.
	Backends []string
	// Volumes are QEMU arguments for what is plugged into devices: namespaces of an NVMe controller.
	Volumes []string
}

// Root is a PCIe root complex on a NUMA node.
type Root struct {
	ID string
	// Bus is the number of its root bus. The buses behind its ports follow, so leave room before the next root.
	Bus uint8
	// Node is the NUMA node, 0 or 1.
	Node int
	// Ports are root ports: their slots are their places in this list.
	Ports []Part
}

// Part is a function of the hierarchy: an endpoint, or a bridge with what is behind it.
type Part struct {
	// ID names the part for QEMU and in Addresses.
	ID string
	// Model is QEMU's name of the device.
	Model string
	// Properties are QEMU properties, "name=value".
	Properties []string
	// Slot and Function are where it sits on its bus.
	Slot, Function uint8
	// Bridge is set for parts that have a bus of their own, empty or not.
	Bridge bool
	// Below are the parts on that bus.
	Below []Part
}

// Args are the QEMU arguments of the whole hierarchy, parents first.
func (t Topology) Args() []string {
	args := append([]string(nil), t.Backends...)
	chassis := 0
	for _, root := range t.Roots {
		args = append(args, "-device", fmt.Sprintf("pxb-pcie,id=%s,bus_nr=%#x,numa_node=%d,bus=pcie.0", root.ID, root.Bus, root.Node))
		for slot, port := range root.Ports {
			port.Slot = uint8(slot)
			args = port.args(args, root.ID, &chassis)
		}
	}
	return append(args, t.Volumes...)
}

func (p Part) args(args []string, bus string, chassis *int) []string {
	words := []string{p.Model, "id=" + p.ID, "bus=" + bus, fmt.Sprintf("addr=%x.%x", p.Slot, p.Function)}
	if p.isPort() { // PCIe ports are told apart by chassis and slot
		*chassis++
		words = append(words, fmt.Sprintf("chassis=%d", *chassis), fmt.Sprintf("slot=%d", *chassis))
	}
	args = append(args, "-device", strings.Join(append(words, p.Properties...), ","))
	for _, below := range p.Below {
		args = below.args(args, p.ID, chassis)
	}
	return args
}

func (p Part) isPort() bool {
	return p.Model == rootPort || p.Model == downstreamPort
}

// Addresses maps the ID of each part to its PCI address, like 0000:21:00.0. The firmware numbers buses depth first,
// in the order of slots, and Linux keeps its numbers.
func (t Topology) Addresses() map[string]string {
	found := map[string]string{}
	for _, root := range t.Roots {
		next := root.Bus
		for slot, port := range root.Ports {
			port.Slot = uint8(slot)
			port.number(found, root.Bus, &next)
		}
	}
	return found
}

// number records the part on bus and all below it; last is the highest bus number given out.
func (p Part) number(found map[string]string, bus uint8, last *uint8) {
	found[p.ID] = fmt.Sprintf("0000:%02x:%02x.%d", bus, p.Slot, p.Function)
	if !p.Bridge {
		return
	}
	*last++
	own := *last
	for _, below := range p.Below {
		below.number(found, own, last)
	}
}

// Nodes maps the ID of each part to its NUMA node.
func (t Topology) Nodes() map[string]int {
	found := map[string]int{}
	for _, root := range t.Roots {
		for _, port := range root.Ports {
			port.walk(func(p Part) { found[p.ID] = root.Node })
		}
	}
	return found
}

func (p Part) walk(visit func(Part)) {
	visit(p)
	for _, below := range p.Below {
		below.walk(visit)
	}
}

package sysfstest

import (
	"cmp"
	"fmt"
	"path"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// Root is a PCI root bus.
type Root struct {
	Domain uint32
	Bus    uint8
	// NUMA is the node that everything below reports; -1 for none.
	NUMA int
	// Under is the directory below sys/devices that holds the root: empty on
	// most machines, "platform/30000000.pcie" where the host bridge is a platform
	// device, a function's directory for Intel VMD.
	Under string
}

// String returns the kernel's name of the root bus: "pci0000:3a".
func (r Root) String() string { return fmt.Sprintf("pci%04x:%02x", r.Domain, r.Bus) }

func (r Root) dir() string { return path.Join("sys/devices", r.Under, r.String()) }

// Port is a port that leads to another bus: a root port, a port of a switch, or
// a bridge to conventional PCI.
type Port struct {
	Address pci.Address
	// Secondary is the bus below it, and Subordinate the last bus below it (the secondary one if 0).
	Secondary, Subordinate uint8
	// Vendor and Device are Intel's if 0.
	Vendor, Device pci.ID
	// Type is RootPort if 0.
	Type pci.PortType
	// ACS is the port's access control; nil for [FullACS].
	ACS *pci.ACS
	// NoACS leaves the capability out.
	NoACS bool
	// DPC is downstream port containment; nil for a port that has none.
	DPC *pci.Switchable
	// HotPlug gives the port a slot that takes devices while it runs.
	HotPlug bool
	// Driver is "pcieport" if empty, "-" for none.
	Driver string
	// Group is as in [Function].
	Group int
}

// Switch is a PCIe switch.
type Switch struct {
	// Upstream is the upstream port, Secondary the bus of the downstream ports.
	Upstream  pci.Address
	Secondary uint8
	// Ports are the downstream ports, on bus Secondary.
	Ports []Port
	// Group is the upstream port's, as in [Function].
	Group int
	// Vendor and Device are those of all its ports, as in [Port].
	Vendor, Device pci.ID
}

// FullACS returns the controls that the kernel requires of a port that separates functions: source
// validation, request and completion redirect, upstream forwarding, all supported and on
// (drivers/iommu/iommu.c REQ_ACS_FLAGS).
func FullACS() *pci.ACS {
	bits := uint16(pci.ACSSourceValidation | pci.ACSRequestRedirect |
		pci.ACSCompletionRedirect | pci.ACSUpstreamForwarding)
	return &pci.ACS{Capability: bits, Control: bits}
}

// AddRoot adds a root bus.
func (k *Kernel) AddRoot(r Root) {
	k.build(func() {
		for _, other := range k.roots {
			if other.Domain == r.Domain && other.Bus == r.Bus {
				k.wrong("add %s: it is there already", r)
				return
			}
		}
		k.roots = append(k.roots, r)
		k.mkdir(r.dir())
	})
}

// AddPort adds a port.
func (k *Kernel) AddPort(p Port) {
	k.Add(p.function())
}

// AddSwitch adds a switch, below the port that leads to its upstream port's bus.
func (k *Kernel) AddSwitch(s Switch) {
	last := s.Secondary
	for _, p := range s.Ports {
		last = max(last, p.Secondary, p.Subordinate)
	}
	k.AddPort(Port{
		Address: s.Upstream, Secondary: s.Secondary, Subordinate: last,
		Type: pci.UpstreamPort, NoACS: true, Group: s.Group, Vendor: s.Vendor, Device: s.Device,
	})
	for _, p := range s.Ports {
		p.Type, p.Vendor, p.Device = pci.DownstreamPort, s.Vendor, s.Device
		k.AddPort(p)
	}
}

// function returns the port as a function of a bridge's class.
func (p Port) function() Function {
	f := Function{
		Address: p.Address, Vendor: cmp.Or(p.Vendor, 0x8086), Device: cmp.Or(p.Device, 0x352a), Class: pci.ClassPCIBridge << 8,
		Group: p.Group, Driver: p.Driver,
		bridge: &bridge{p.Secondary, max(p.Secondary, p.Subordinate)},
	}
	switch p.Driver {
	case "":
		f.Driver = "pcieport"
	case "-":
		f.Driver = ""
	}
	if p.Type == 0 {
		p.Type = pci.RootPort
	}
	f.Capabilities = pci.Capabilities{
		Express: &pci.Express{Type: p.Type, HotPlug: p.HotPlug},
		Power:   &pci.Power{NoSoftReset: true},
		MSI:     true,
		AER:     true,
		ACS:     p.ACS,
		DPC:     p.DPC,
	}
	if p.ACS == nil && !p.NoACS {
		f.Capabilities.ACS = FullACS()
	}
	return f
}

// A bus is a bus of a domain.
type bus struct {
	domain uint32
	number uint8
}

func newBus(a pci.Address) bus { return bus{a.Domain, a.Bus} }

// above returns the directory that a function hangs in and the root it hangs
// off: where the port leads whose secondary bus is the function's, or the root
// itself. Callers hold mu.
func (k *Kernel) above(a pci.Address) (dir string, root Root, ok bool) {
	if f := k.buses[newBus(a)]; f != nil {
		return f.dir, f.root, true
	}
	for _, r := range k.roots {
		if r.Domain == a.Domain && r.Bus == a.Bus {
			return r.dir(), r, true
		}
	}
	return "", Root{}, false
}

// SetACS sets which access controls of a port are on, as setpci does, without a uevent.
func (k *Kernel) SetACS(port pci.Address, control uint16) {
	k.build(func() {
		f := k.functions[port]
		if f == nil || f.Capabilities.ACS == nil {
			k.wrong("set ACS of %s: it has none", port)
			return
		}
		k.changeConfig(f, func() {
			acs := *f.Capabilities.ACS
			acs.Control = control
			f.Capabilities.ACS = &acs
		})
	})
}

package plan

import (
	"fmt"

	"github.com/kata-vfio/kata-vfio/pkg/device"
)

// linked refuses what lost its PCIe link, or a VF whose PF did.
func (c *candidate) linked() *Refusal {
	for _, t := range c.all {
		for _, f := range c.withPF(t.f) {
			if f.LinkDown() {
				return c.mate(f, LinkLost,
					fmt.Sprintf("the PCIe link of %s is down (width 0 of x%d)", f.Address, f.Link.MaxWidth),
					"check its power and seating; remove and rescan it, or restart the node")
			}
		}
	}
	return nil
}

// sound refuses what reported fatal errors, or a VF whose PF did.
func (c *candidate) sound() *Refusal {
	for _, t := range c.all {
		for _, f := range c.withPF(t.f) {
			if c.node.FatalErrors[f.Address] {
				return c.mate(f, FatalErrors,
					fmt.Sprintf("%s reported fatal PCIe errors since it was last proven clean", f.Address),
					fmt.Sprintf("look at the kernel's log and at /sys/bus/pci/devices/%s/aer_dev_fatal; check the device, then drain and undrain it, or restart the node", f.Address))
			}
		}
	}
	return nil
}

// withPF returns f, and its PF where it has one: they share a link and a fate.
func (c *candidate) withPF(f *device.Function) []*device.Function {
	if f.VF != nil {
		if pf, ok := c.node.Snapshot.Function(f.VF.PF); ok {
			return []*device.Function{f, pf}
		}
	}
	return []*device.Function{f}
}

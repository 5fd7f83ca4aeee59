package audit

import (
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// joinCompanions marks the companions of each GPU. A companion without a reset of its own is not at fault if the GPU's reset covers
// it, or if it is in another IOMMU group: in that case, a claim without parameters includes the companion and does not give it to
// the VM. A companion that the node config selects as a device of its own needs its own reset.
func (inv *Inventory) joinCompanions(n plan.Node) {
	for i := range inv.Devices {
		gpu := &inv.Devices[i]
		if gpu.Type != device.GPU {
			continue
		}
		for _, f := range n.Snapshot.Companions(gpu.Function) {
			d := inv.device(f.Address)
			if d != nil && !gpu.isLeftOut() {
				d.serves = &gpu.Address
			}
			if gpu.Reset == nil {
				continue
			}
			covered := slices.Contains(gpu.Reset.Set, f.Address)
			apart := f.Group != nil && gpu.Group != nil && *f.Group != *gpu.Group
			if d != nil && (covered || apart) && !n.Selection.Choice(f.Address).Ours {
				d.goWith(gpu, covered)
			}
		}
	}
}

// device returns the function at an address; nil if there is none. Devices are by address.
func (inv *Inventory) device(a pci.Address) *Device {
	i, found := slices.BinarySearchFunc(inv.Devices, a, func(d Device, a pci.Address) int { return d.Address.Compare(a) })
	if !found {
		return nil
	}
	return &inv.Devices[i]
}

func (d *Device) goWith(gpu *Device, covered bool) {
	d.CompanionOf = &gpu.Address
	if d.Reset == nil && covered {
		d.Reset = gpu.Reset
	}
	d.Reasons = slices.DeleteFunc(d.Reasons, func(r rule.Verdict) bool { return r.Code == rule.NoReset })
	d.Refusals = slices.DeleteFunc(d.Refusals, func(r rule.Verdict) bool { return r.Code == rule.NoReset })
	d.Isolated = len(d.Reasons) == 0
}

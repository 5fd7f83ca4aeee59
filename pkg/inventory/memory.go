package inventory

import (
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// readMemory reads the populated base address registers, the size of the ROM, and whether a PF's VFs have memory.
func readMemory(f *device.Function, a *attributes) {
	f.BARs, f.ROM = nil, 0
	text, ok := a.text("resource")
	if !ok {
		return
	}
	own, err1 := pci.ParseResources(text)
	rom, has, err2 := pci.ROM(text)
	if err := firstError(err1, err2); err != nil {
		a.fail("resource", err)
		return
	}
	f.BARs = bars(own)
	if has {
		f.ROM = rom.Size()
	}
	if f.PF == nil {
		return
	}
	// With SR-IOV in the kernel, the lines of the VFs' regions follow the ROM's (PCI_IOV_RESOURCES in include/linux/pci.h).
	ofVFs, err := pci.ParseVFResources(text)
	if err != nil {
		a.fail("resource", err)
		return
	}
	f.PF.UnassignedBARs = nil
	for i, r := range ofVFs {
		if r.Unassigned() {
			f.PF.UnassignedBARs = append(f.PF.UnassignedBARs, i)
		}
	}
}

// bars returns the BARs that the function has, assigned or not.
func bars(resources []pci.Resource) []device.BAR {
	var all []device.BAR
	for i, r := range resources {
		if r.Size() == 0 && !r.Unassigned() {
			continue
		}
		bar := device.BAR{Index: i, Size: r.Size(), IO: r.IO(), Prefetchable: r.Prefetchable(), Is64: r.Is64(), Unassigned: r.Unassigned()}
		if !bar.Unassigned {
			bar.Start = r.Start
		}
		all = append(all, bar)
	}
	return all
}

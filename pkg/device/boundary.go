package device

import (
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// Boundary is what separates a device from the other tenants of its card.
type Boundary string

// Boundaries, the strongest first.
const (
	// BoundaryDevice: the device is a physical function, which nobody shares.
	BoundaryDevice Boundary = "device"
	// BoundaryHardware: the device is a VF, with memory and engines that hardware has partitioned.
	BoundaryHardware Boundary = "hardwareSlice"
	// BoundaryScheduler: the device is a VF, and firmware or the PF's driver shares engines among VFs in time.
	BoundaryScheduler Boundary = "scheduler"
)

// Boundary returns the boundary of f, which is a function of the snapshot. It is what the vendor says, and is not
// measured. If nothing is known of a VF's card, the VF has the weakest boundary. So has a vGPU with a MIG-backed type:
// a GPU instance may have several vGPUs, which share its engines in time, and neither the type's name nor the VF shows
// whether a vGPU is alone in its instance.
func (s *Snapshot) Boundary(f *Function) Boundary {
	if f.VF == nil {
		return BoundaryDevice
	}
	if pf, ok := s.Function(f.VF.PF); ok && f.Type == GPUVF && isPartitioned(pf.Vendor, pf.Device) && pf.hasPartitions() {
		return BoundaryHardware
	}
	return BoundaryScheduler
}

// hasPartitions reports whether an AMD GPU has compute dies of its own for each VF, according to gim. If there are
// fewer partitions than VFs, VFs share partitions in time. A gim that does not report partitions has divided the GPU
// nevertheless, because gim makes several VFs only in a partition mode. If another driver made the VFs, nothing is
// known about them.
func (f *Function) hasPartitions() bool {
	if f.PF == nil || f.Driver != "gim" {
		return false
	}
	vfs := f.PF.NumVFs
	compute, _, _ := strings.Cut(f.PF.Partition, "/")
	switch compute {
	case "SPX":
		return vfs <= 1
	case "DPX":
		return vfs <= 2
	case "TPX":
		return vfs <= 3
	case "QPX":
		return vfs <= 4
	}
	return true // CPX: each die is a partition
}

// Partition returns how AMD's driver has divided the GPU of a VF; see [PF.Partition].
func (s *Snapshot) Partition(f *Function) string {
	if f.VF == nil {
		return ""
	}
	if pf, ok := s.Function(f.VF.PF); ok && pf.PF != nil {
		return pf.PF.Partition
	}
	return ""
}

// isPartitioned reports whether the IDs are those of a GPU whose VFs have compute dies (XCDs) of their own: AMD's CDNA
// 3 and 4. With several VFs, AMD's driver gim supports only a mode in which each VF has a partition of dies and memory
// (amd/MxGPU-Virtualization, notes of 9.4: 8 VFs in mode CPX, 2 in DPX).
func isPartitioned(vendor, id pci.ID) bool {
	switch (model{vendor, id}) {
	case model{pci.VendorAMD, 0x74a1}, model{pci.VendorAMD, 0x74a5}, // MI300X, MI325X
		model{pci.VendorAMD, 0x75a0}, model{pci.VendorAMD, 0x75a3}: // MI350X, MI355X
		return true
	}
	return false
}

// Card returns the address that identifies f's card: the address of function 0 of f's physical device or, for a VF, of
// its PF's. Functions with the same card are on one board, but a board with several GPUs has a card for each GPU.
func (s *Snapshot) Card(f *Function) pci.Address {
	if f.VF == nil {
		return f.Card()
	}
	if pf, ok := s.Function(f.VF.PF); ok {
		return pf.Card()
	}
	pf := Function{Address: f.VF.PF}
	return pf.Card()
}

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

// Boundary returns the boundary of f, which is of the snapshot. It is a vendor's word, and no measurement. A VF of a card of which
// nothing is known has the weakest.
func (s *Snapshot) Boundary(f *Function) Boundary {
	if f.VF == nil {
		return BoundaryDevice
	}
	if pf, ok := s.Function(f.VF.PF); ok && f.Type == GPUVF && isPartitioned(pf.Vendor, pf.Device) && pf.PF.hasPartitions() {
		return BoundaryHardware
	}
	return BoundaryScheduler
}

// hasPartitions reports whether an AMD GPU has its own compute dies for each VF, by what gim reports. With fewer partitions than VFs, VFs
// share them in time.
func (pf *PF) hasPartitions() bool {
	if pf == nil || pf.Partition == "" {
		return true
	}
	compute, _, _ := strings.Cut(pf.Partition, "/")
	switch compute {
	case "SPX":
		return pf.NumVFs <= 1
	case "DPX":
		return pf.NumVFs <= 2
	case "TPX":
		return pf.NumVFs <= 3
	case "QPX":
		return pf.NumVFs <= 4
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

// isPartitioned reports whether the ids are those of a GPU whose VFs have compute dies (XCDs) of their own: AMD's CDNA 3 and 4. With
// several VFs, AMD's driver gim supports a partition of dies and memory for each VF, and no other mode
// (amd/MxGPU-Virtualization, notes of 9.4: 8 VFs in mode CPX, 2 in DPX).
func isPartitioned(vendor, id pci.ID) bool {
	switch (model{vendor, id}) {
	case model{pci.VendorAMD, 0x74a1}, model{pci.VendorAMD, 0x74a5}, // MI300X, MI325X
		model{pci.VendorAMD, 0x75a0}, model{pci.VendorAMD, 0x75a3}: // MI350X, MI355X
		return true
	}
	return false
}

// Card returns the address that identifies f's card: that of function 0 of its physical device, or of its PF's. Functions with one
// card are on one board, and a board with several GPUs has a card for each.
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

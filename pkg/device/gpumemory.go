package device

import (
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// model is a vendor and device id.
type model struct{ vendor, device pci.ID }

// gpuGiB is the memory of data-center and workstation GPUs in GiB, by their ids (https://pci-ids.ucw.cz, and the vendors' data
// sheets). A GPU's BARs don't say it: they are a power of two, and often larger or much smaller. Models that share an id and differ
// in memory are not listed.
//
//nolint:funlen // a table
func gpuGiB(id model) uint64 {
	const nvidia, amd, intel = pci.VendorNVIDIA, pci.VendorAMD, pci.VendorIntel
	switch id {
	case model{nvidia, 0x2901}: // B200
		return 180
	case model{nvidia, 0x2335}: // H200 SXM
		return 141
	case model{nvidia, 0x2329}: // H20
		return 96
	case model{nvidia, 0x2321}: // H100 NVL
		return 94
	case model{nvidia, 0x2330}, model{nvidia, 0x2331}, model{nvidia, 0x2322}, model{nvidia, 0x2324}: // H100 SXM5, H100 PCIe, H800 PCIe, H800
		return 80
	case model{nvidia, 0x20b2}, model{nvidia, 0x20b5}, model{nvidia, 0x20f3}, model{nvidia, 0x20f5}: // A100 80GB SXM4, PCIe, A800 SXM4, PCIe
		return 80
	case model{nvidia, 0x20b0}, model{nvidia, 0x20b1}, model{nvidia, 0x20f1}, model{nvidia, 0x20f6}: // A100 40GB SXM4, PCIe, A800 40GB PCIe
		return 40
	case model{nvidia, 0x26b5}, model{nvidia, 0x26b9}, model{nvidia, 0x26b1}, model{nvidia, 0x2235}, model{nvidia, 0x2230}: // L40, L40S, RTX 6000 Ada, A40, RTX A6000
		return 48
	case model{nvidia, 0x1db5}, model{nvidia, 0x1db6}, model{nvidia, 0x1db8}, model{nvidia, 0x1df6}, model{nvidia, 0x2b85}: // V100 32GB, V100S, RTX 5090
		return 32
	case model{nvidia, 0x20b7}, model{nvidia, 0x2236}, model{nvidia, 0x27b8}, model{nvidia, 0x2684}, model{nvidia, 0x2204}: // A30, A10, L4, RTX 4090, RTX 3090
		return 24
	case model{nvidia, 0x1db1}, model{nvidia, 0x1db4}, model{nvidia, 0x1eb8}, model{nvidia, 0x25b6}: // V100 16GB, T4, A2 and A16
		return 16
	case model{amd, 0x75a0}, model{amd, 0x75a3}: // MI350X, MI355X
		return 288
	case model{amd, 0x74a5}: // MI325X
		return 256
	case model{amd, 0x74a1}: // MI300X
		return 192
	case model{amd, 0x740f}: // MI210
		return 64
	case model{amd, 0x738c}: // MI100
		return 32
	case model{intel, 0x0bd5}: // Max 1550
		return 128
	case model{intel, 0x0bda}: // Max 1100
		return 48
	case model{intel, 0x56c0}: // Flex 170
		return 16
	}
	return 0
}

// GPUMemory returns a GPU's memory in bytes, and whether it is known. It is known for the IDs of common models. For
// other models it is the size of the largest BAR, which is only an estimate: with a resizable BAR it is the memory
// rounded to a power of two, otherwise it is much less. GPUMemory returns 0 for a function that is no GPU.
func (f *Function) GPUMemory() (size uint64, known bool) {
	if f.Type != GPU {
		return 0, false
	}
	if gib := gpuGiB(model{f.Vendor, f.Device}); gib > 0 {
		return gib << 30, true
	}
	for _, b := range f.BARs {
		if !b.IO {
			size = max(size, b.Size)
		}
	}
	return size, false
}

// GPUMemory returns the memory of a GPU, as [Function.GPUMemory] does, or of a VF of a GPU. The memory of a VF is known
// if the vendor says how its driver divides the model's memory: AMD's gim makes equal VFs, in the numbers that its
// release notes name. It is 0 for other VFs, because their BARs don't show it.
func (s *Snapshot) GPUMemory(f *Function) (size uint64, known bool) {
	if f.Type != GPUVF || f.VF == nil {
		return f.GPUMemory()
	}
	pf, ok := s.Function(f.VF.PF)
	if !ok || pf.PF == nil || !slices.Contains(alikeVFs(model{pf.Vendor, pf.Device}), pf.PF.NumVFs) {
		return 0, false
	}
	return gpuGiB(model{pf.Vendor, pf.Device}) << 30 / uint64(pf.PF.NumVFs), true
}

// alikeVFs returns the numbers of VFs in which gim divides a model (amd/MxGPU-Virtualization, notes of 9.2 to 9.4).
func alikeVFs(id model) []int {
	switch id {
	case model{pci.VendorAMD, 0x75a0}, model{pci.VendorAMD, 0x75a3}: // MI350X, MI355X
		return []int{1, 2, 8}
	case model{pci.VendorAMD, 0x74a1}: // MI300X
		return []int{1, 8}
	case model{pci.VendorAMD, 0x74a5}, model{pci.VendorAMD, 0x740f}: // MI325X, MI210
		return []int{1}
	}
	return nil
}

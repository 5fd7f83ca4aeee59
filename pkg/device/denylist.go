package device

import "github.com/kata-vfio/kata-vfio/pkg/pci"

// IsDenylisted reports whether the generic vfio-pci refuses the function because of known errata, unless its parameter
// disable_denylist is set (vfio_pci_dev_in_denylist in drivers/vfio/pci/vfio_pci.c). All of them are Intel's: QuickAssist
// with its VFs, and since Linux 6.10 the DSA and IAX of Sapphire Rapids.
func (f *Function) IsDenylisted() bool {
	if f.Vendor != pci.VendorIntel {
		return false
	}
	switch f.Device {
	case 0x0435, 0x0443, // DH895xCC
		0x19e2, 0x19e3, // C3xxx
		0x37c8, 0x37c9, // C62x
		0x0b25, 0x0cfe: // DSA, IAX
		return true
	}
	return false
}

// OnVFIO reports whether a driver serves the function to user space through VFIO now. It is one of VFIO's own drivers,
// or a vendor's driver that has made a VFIO device for the function.
func (f *Function) OnVFIO() bool { return IsVFIO(f.Driver) || f.Driver != "" && f.Children.Served }

// ServesVFIO reports whether the function's host driver serves VFIO itself, so that the function must stay on that
// driver. Either the driver has made a VFIO device, or the function is a VF of an NVIDIA GPU, which becomes a vGPU only
// by NVIDIA's driver.
func (f *Function) ServesVFIO() bool {
	if IsVFIO(f.Driver) {
		return false
	}
	return f.Driver != "" && f.Children.Served || f.isVGPU()
}

// isVGPU reports whether the function is a VF of an NVIDIA GPU. It works only with NVIDIA's driver: vfio-pci refuses
// it, and after it has left NVIDIA's driver, it is useless until the VFs are made again.
func (f *Function) isVGPU() bool {
	return f.Type == GPUVF && f.Vendor == pci.VendorNVIDIA && (f.Driver == "nvidia" || f.Driver == "")
}

package device

import "github.com/kata-vfio/kata-vfio/pkg/pci"

// IsBridge reports whether the function is a bridge, which is never assigned: it forwards the requests of others, or
// is a part of the chipset.
//
// An NVSwitch, a non-transparent bridge and the like have a bridge's class and an endpoint's header. They send and get
// requests of their own, and are not bridges.
func (f *Function) IsBridge() bool { return isBridge(f.Class, f.Capabilities.Header) }

// isBridge decides by the header, as the kernel does: a function with another header than an endpoint's forwards requests,
// and vfio-pci refuses it (vfio_pci_core_register_device in drivers/vfio/pci/vfio_pci_core.c). Bridges to the host and to
// the buses before PCI have an endpoint's header. If the header is unknown, the class decides.
func isBridge(class pci.Class, header pci.HeaderType) bool {
	if header == pci.HeaderBridge || header == pci.HeaderCardBus {
		return true
	}
	switch class.Sub() {
	case pci.ClassHostBridge, pci.ClassISABridge, pci.ClassEISABridge, pci.ClassMCABridge, pci.ClassPCMCIA, pci.ClassNuBus, pci.ClassRACEway:
		return true
	case pci.ClassPCIBridge, pci.ClassCardBus, pci.ClassSemiPCI, pci.ClassIBBridge:
		return header != pci.HeaderNormal
	}
	return false
}

// IsNVSwitch reports whether the function is one of the switches between the GPUs of an NVIDIA board, by the id table of
// NVIDIA's driver nvidia-nvswitch (nvswitch_pci_table in kernel-open/nvidia/linux_nvswitch.c).
func (f *Function) IsNVSwitch() bool {
	return f.Vendor == pci.VendorNVIDIA && f.Class.Sub() == pci.ClassOtherBridge && !f.IsBridge()
}

// IsOnNVLink reports whether the function is an NVSwitch, or a GPU that may be connected to one: cards with a display have
// no NVLink to switches.
func (f *Function) IsOnNVLink() bool {
	return f.IsNVSwitch() || f.Vendor == pci.VendorNVIDIA && f.Type == GPU && f.Class.Sub() == pci.Class3D
}

// IsSwitchPart reports whether the function is the endpoint of a switch or of a non-transparent bridge. A tenant that has it
// can reach other tenants' devices behind it.
func (f *Function) IsSwitchPart() bool { return f.Class.Base() == pci.BaseBridge && !f.IsBridge() }

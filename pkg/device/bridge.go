package device

import "github.com/kata-vfio/kata-vfio/pkg/pci"

// IsBridge reports whether the function is a bridge. A bridge is never assigned, because it forwards the requests of
// others or is a part of the chipset.
//
// Functions such as an NVSwitch or a non-transparent bridge have a bridge's class, but an endpoint's header. They send
// and get requests of their own, and are not bridges.
func (f *Function) IsBridge() bool { return isBridge(f.Class, f.Capabilities.Header) }

// isBridge decides by the header, as the kernel does: a function whose header is not an endpoint's forwards requests,
// and vfio-pci refuses it (vfio_pci_core_register_device in drivers/vfio/pci/vfio_pci_core.c). Bridges to the host, and
// to buses that are older than PCI, have an endpoint's header, so the class decides for them. It also decides if the
// header is unknown.
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
// NVIDIA's driver nvidia-nvswitch (nvswitch_pci_table in kernel-open/nvidia/linux_nvswitch.c), or manages such switches.
func (f *Function) IsNVSwitch() bool {
	return f.ManagesSwitches() || f.Vendor == pci.VendorNVIDIA && f.Class.Sub() == pci.ClassOtherBridge && !f.IsBridge()
}

// SwitchManager is what the vital product data of a ConnectX function say. It matters on a node with GPUs whose
// NVSwitches are no PCI functions: the host reaches those switches through ConnectX functions of the board. By their
// IDs and class, such functions are NICs.
type SwitchManager struct {
	Manages bool `json:"manages"`
	// Unread says why the data can't be read; empty if they were.
	Unread string `json:"unread,omitempty"`
}

// ManagesSwitches reports whether the function is known to manage the NVSwitches of its board. A tenant that has it can join any of its GPUs.
func (f *Function) ManagesSwitches() bool { return f.Manager != nil && f.Manager.Manages }

// MayManageSwitches returns, as a phrase, why it is unknown whether the function manages NVSwitches; empty if that is
// known.
func (f *Function) MayManageSwitches() string {
	if f.Manager == nil || f.Manager.Unread == "" {
		return ""
	}
	return "it may manage the NVSwitches of the GPUs: its vital product data, which would tell, can't be read (" + f.Manager.Unread + ")"
}

// IsOnNVLink reports whether the function is an NVSwitch, or a GPU that may be connected to one: cards with a display have
// no NVLink to switches.
func (f *Function) IsOnNVLink() bool {
	return f.IsNVSwitch() || f.Vendor == pci.VendorNVIDIA && f.Type == GPU && f.Class.Sub() == pci.Class3D
}

// IsSwitchPart reports whether the function is the endpoint of a switch or of a non-transparent bridge, or manages switches. A tenant that has it
// can reach other tenants' devices behind it.
func (f *Function) IsSwitchPart() bool {
	return f.ManagesSwitches() || f.Class.Base() == pci.BaseBridge && !f.IsBridge()
}

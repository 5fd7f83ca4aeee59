package device

import (
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// StaysOnHost returns, as a phrase, why a physical function must not leave its host driver; empty if it may. The
// vendors of such functions require that the host's driver serves the VFs, and support only VMs with VFs.
func (f *Function) StaysOnHost() string {
	switch {
	case f.VF != nil:
		return ""
	case f.Driver == "gim":
		return "AMD's driver gim has it, and a GPU that VFIO has reset does not answer until the node restarts; AMD passes its VFs only"
	case isQuickAssistPF(f.Vendor, f.Device):
		return "it is a QuickAssist PF, whose driver loads the firmware and sets the services of all its VFs; Intel passes its VFs only"
	case f.Driver == "xe" && f.PF != nil && f.PF.NumVFs > 0:
		return "driver xe shares it among its VFs, which have memory and time of the GPU from that driver only"
	}
	return ""
}

// isQuickAssistPF reports whether the ids are in the tables of the drivers for PFs (drivers/crypto/intel/qat/qat_*).
func isQuickAssistPF(vendor, id pci.ID) bool {
	if vendor != pci.VendorIntel {
		return false
	}
	switch id {
	case 0x0435, 0x19e2, 0x37c8, // DH895xCC, C3xxx, C62x
		0x4940, 0x4942, 0x4944, 0x4946, 0x4948: // 4xxx, 401xx, 402xx, 420xx, 6xxx
		return true
	}
	return false
}

package device

import (
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// IsBMCDisplay reports whether the function is the display of the node's management controller (BMC), which shows that
// display to the node's administrators. The function is a part of the controller, and an ASPEED's can reach the
// controller's memory (P2A bridge, CVE-2019-6260). GPUs, and cards that only drive a monitor, have other IDs.
func (f *Function) IsBMCDisplay() bool {
	if f.Class.Base() != pci.BaseDisplay {
		return false
	}
	return slices.ContainsFunc(bmcDisplays(), func(d bmcDisplay) bool {
		return d.vendor == f.Vendor && (len(d.devices) == 0 || slices.Contains(d.devices, f.Device))
	})
}

// bmcDisplay is a vendor with the IDs of those of its displays that are parts of management controllers. Without IDs,
// all displays of the vendor are.
type bmcDisplay struct {
	vendor  pci.ID
	devices []pci.ID
}

// bmcDisplays returns the displays from the id tables of drivers in drivers/gpu/drm of the kernel.
func bmcDisplays() []bmcDisplay {
	return []bmcDisplay{
		// ast/ast_drv.c: ASPEED's other functions are not displays.
		{vendor: 0x1a03},
		// mgag200/mgag200_drv.c: Matrox G200 for servers (SE, EV, eW, EH, ER, eW3, EH3, EH5), whose output the driver calls VGA-BMC.
		// 0520 and 0521 are cards.
		{vendor: 0x102b, devices: []pci.ID{0x0522, 0x0524, 0x0530, 0x0532, 0x0533, 0x0534, 0x0536, 0x0538, 0x053a}},
		// hisilicon/hibmc/hibmc_drm_drv.c: Huawei's iBMC. Its other functions of class display and accelerator are Ascend.
		{vendor: 0x19e5, devices: []pci.ID{0x1711}},
		// yhgch/yhgch_drm_drv.c in openEuler's kernel: Inspur's (IEIT).
		{vendor: 0x1bd4, devices: []pci.ID{0x0750}},
	}
}

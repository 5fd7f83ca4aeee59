package fabric

import (
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// HasManagedSwitches reports whether a GPU of the model with the device ID has its NVSwitches behind ConnectX functions, and not on the PCI
// bus: GB100 (B100, B200) and GB110 (B300), by pci.ids.
func HasManagedSwitches(gpu pci.ID) bool {
	return 0x2900 <= gpu && gpu <= 0x29ff || 0x3180 <= gpu && gpu <= 0x31ff
}

// ManagesSwitches reports whether the vital product data is that of a ConnectX function that manages NVSwitches.
func ManagesSwitches(vpd string) bool { return strings.Contains(vpd, "SW_MNG") }

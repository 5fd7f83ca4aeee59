package device_test

import (
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// TestDisplaysOfManagementControllers tells them from GPUs and from other functions of their vendors.
func TestDisplaysOfManagementControllers(t *testing.T) {
	const vga, other, accelerator, bridge pci.Class = 0x030000, 0x038000, 0x120000, 0x060400
	for name, c := range map[string]struct {
		vendor, device pci.ID
		class          pci.Class
		want           bool
	}{
		"ASPEED":                   {0x1a03, 0x2000, vga, true},
		"ASPEED, not VGA":          {0x1a03, 0x2010, other, true},
		"ASPEED's bridge":          {0x1a03, 0x1150, bridge, false},
		"Matrox G200SE":            {0x102b, 0x0522, vga, true},
		"Matrox G200eW3":           {0x102b, 0x0536, vga, true},
		"Matrox G200EH5":           {0x102b, 0x053a, vga, true},
		"Matrox G200 on a card":    {0x102b, 0x0521, vga, false},
		"Huawei iBMC":              {0x19e5, 0x1711, vga, true},
		"Huawei Ascend":            {0x19e5, 0xd802, accelerator, false},
		"Inspur's":                 {0x1bd4, 0x0750, vga, true},
		"an NVIDIA GPU":            {0x10de, 0x20b5, vga, false},
		"QEMU's display":           {0x1234, 0x1111, vga, false},
		"Cirrus Logic's, emulated": {0x1013, 0x00b8, vga, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := device.Function{Vendor: c.vendor, Device: c.device, Class: c.class}
			if got := f.IsBMCDisplay(); got != c.want {
				t.Errorf("IsBMCDisplay = %v, want %v", got, c.want)
			}
		})
	}
}

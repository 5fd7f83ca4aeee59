package plan

import (
	"fmt"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
)

// FirmwareWindow is the 32-bit memory window that a VM's firmware leaves below an empty hot-plug port, in bytes. Kata 4.1 reserves
// nothing for its ports rp0, rp1, ... (virtcontainers/qemu.go genericAppendPCIeRootPort; Rust runtime: cmdline_generator.rs), so it is
// what firmware does by itself: SeaBIOS 1.16 and 1.17 reserve 2 MiB (src/fw/pciinit.c PCI_BRIDGE_MEM_MIN), OVMF too
// (OvmfPkg/PciHotPlugInitDxe DefaultMmio).
const FirmwareWindow = 2 << 20

// prefetchableWindow is the most that firmware leaves there for 64-bit prefetchable BARs: SeaBIOS 1/2048 of 46 address bits at most
// (pci_pad_mem64), OVMF 1/256 of the aperture, which is 1/8 of 47 address bits at most (DefaultPrefMmio). With a smaller VM, other
// firmware or fewer address bits it is less, which nothing on the node tells.
const prefetchableWindow = 64 << 30

// hotPluggable refuses a function that its VM gets while it runs and whose BARs don't fit below the port: Kata and the agent take it
// for plugged and the container starts, while the guest's kernel has no memory space for it. A VM that boots with it has, since the
// firmware sizes the windows by what is there.
func (c *candidate) hotPluggable() *Refusal {
	if c.node.HotPlugWindow == 0 {
		return nil
	}
	for _, t := range c.all {
		if !c.plugged(t) {
			continue
		}
		if text := c.tooLarge(t.f); text != "" {
			return c.mate(t.f, WindowTooSmall, text,
				"have VMs boot with their devices: `cold_plug_vfio = \"root-port\"` and `hot_plug_vfio = \"no-port\"` in Kata's configuration, and the plugin without --hot-plug; "+
					"where the guests are known to make room, say so by --hot-plug-window")
		}
	}
	return nil
}

// plugged reports whether the VM gets a function by hot plug: those that are given, and, since Kata plugs all functions of a group's
// node, the group's others.
func (c *candidate) plugged(t member) bool {
	if t.f.IsBridge() {
		return false
	}
	return slices.Contains(c.give(), t.f.Address) || c.settled == v1alpha1.BackendGroup && t.role == RoleGroupMate
}

// tooLarge says what of a function does not fit; nothing where it fits as far as can be told.
func (c *candidate) tooLarge(f *device.Function) string {
	low, prefetchable := f.Memory()
	kind, need, window := "32-bit BARs", low, c.node.HotPlugWindow
	if low <= window {
		kind, need, window = "64-bit prefetchable BARs", prefetchable, prefetchableWindow
	}
	if need <= window {
		return ""
	}
	return fmt.Sprintf("%s of %s need %s, and a VM that gets it by hot plug has at most %s for them: its guest could not use it", kind, f.Address, bytes(need), bytes(window))
}

// bytes writes a size of BARs and windows in the largest unit that it has one of.
func bytes(n uint64) string {
	units := []string{"bytes", "KiB", "MiB", "GiB"}
	size, unit := float64(n), 0
	for size >= 1024 && unit < len(units)-1 {
		size, unit = size/1024, unit+1
	}
	return fmt.Sprintf("%.4g %s", size, units[unit])
}

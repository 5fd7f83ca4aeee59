package plan

import (
	"fmt"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// FirmwareWindow is the size in bytes of the 32-bit memory window that a VM's firmware leaves below an empty hot-plug
// port. Kata 4.1 reserves nothing for its ports rp0, rp1, ... (virtcontainers/qemu.go genericAppendPCIeRootPort; Rust
// runtime: cmdline_generator.rs), so the firmware's default applies: SeaBIOS 1.16 and 1.17 reserve 2 MiB
// (src/fw/pciinit.c PCI_BRIDGE_MEM_MIN), and so does OVMF (OvmfPkg/PciHotPlugInitDxe DefaultMmio).
const FirmwareWindow = 2 << 20

// prefetchableWindow is the largest window that firmware gives to 64-bit prefetchable BARs: SeaBIOS at most 1/2048 of
// 46 address bits (pci_pad_mem64), OVMF 1/256 of the aperture, which is at most 1/8 of 47 address bits
// (DefaultPrefMmio). Smaller VMs, other firmware and fewer address bits give a smaller window, and nothing on the node
// shows its size.
const prefetchableWindow = 64 << 30

// hotPluggable refuses a function that is plugged into a running VM if its BARs don't fit into the window below the
// port. Kata and the agent would regard it as plugged, and the container would start, but the guest's kernel would have
// no memory space for the BARs. A VM that boots with the function has that space, because the firmware sizes the
// windows by the devices that are present.
func (c *candidate) hotPluggable() *rule.Verdict {
	if c.node.HotPlugWindow == 0 {
		return nil
	}
	for _, f := range c.set.having(isTooLarge, func(f *device.Function) bool { return c.tooLarge(f) != "" }) {
		if c.plugged(member{f, roleIn(c.f, f)}) {
			return c.mate(f, rule.HotPlugWindowTooSmall, c.tooLarge(f),
				"plug devices when the VM boots: `cold_plug_vfio = \"root-port\"` and `hot_plug_vfio = \"no-port\"` in Kata's configuration, and the plugin without --hot-plug; "+
					"if the guests reserve more space, set --hot-plug-window")
		}
	}
	return nil
}

// plugged reports whether the VM gets a function by hot plug. It gets the functions whose VFIO nodes it has. With the
// Group backend, it also gets the other functions of the group, because Kata plugs all functions of a group's node.
func (c *candidate) plugged(t member) bool {
	if t.f.IsBridge() {
		return false
	}
	return slices.Contains(c.give(), t.f.Address) || c.backend() == v1alpha1.BackendGroup && t.role == RoleGroupMate
}

// tooLarge says which BARs of a function don't fit. It is empty if all fit, or if their size is unknown.
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

// bytes formats a size in the largest unit of which there is at least one.
func bytes(n uint64) string {
	units := []string{"bytes", "KiB", "MiB", "GiB"}
	size, unit := float64(n), 0
	for size >= 1024 && unit < len(units)-1 {
		size, unit = size/1024, unit+1
	}
	return fmt.Sprintf("%.4g %s", size, units[unit])
}

// The functions of an IOMMU group that Kata 4.1.0 plugs, by its sources:
//
// With iommufd, a VFIO node is one function. Kata makes an iommufd object for each function, and each object is a
// context of its own in the kernel (Go: VFIODevice.QemuParams in src/runtime/pkg/govmm/qemu/qemu.go, and
// ExecuteVFIODeviceAdd in qmp.go for hot plug; Rust: add_pcie_vfio_device in
// src/runtime-rs/crates/hypervisor/src/qemu/cmdline_generator.rs). The kernel lets only one context have a group
// (iommu_device_claim_dma_owner), so QEMU fails with EPERM for the second function of a group.
//
// Without iommufd, a VFIO node is a group. To Kata it is one device, whose functions it finds by itself: all but host
// and PCI bridges, in order of address (GetAllVFIODevicesFromIOMMUGroup in src/runtime/pkg/device/drivers/utils.go).
// Hot plug plugs all of them (HotplugAddDevice in src/runtime/virtcontainers/sandbox.go), cold plug only the first one
// (AppendDevice, the same file). The Rust runtime leaves out audio functions as well. There, QEMU refuses a group that
// has two other functions, because both get the same root port.

// pluggableTogether refuses a second function of one IOMMU group for one VM. Two claims of one pod can't have two
// functions of a group either, because the owner of a function has its whole group.
func (c *candidate) pluggableTogether() *rule.Verdict {
	given := map[int]pci.Address{} // the function of each group that the VM gets
	for i := range c.devices {
		for _, a := range c.devices[i].Give {
			given[c.groupNumber(a)] = a
		}
	}
	for _, a := range c.give() {
		group := c.groupNumber(a)
		if first, ok := given[group]; ok && first != a && !c.plugsWholeGroups() {
			return c.secondOfGroup(a, first, group)
		}
		given[group] = a
	}
	return nil
}

// plugsWholeGroups reports whether Kata plugs all functions of a group by its node.
func (c *candidate) plugsWholeGroups() bool {
	return c.node.HotPlug && c.backend() == v1alpha1.BackendGroup
}

// groupNumber returns the IOMMU group of a function. Earlier checks refuse a function that is in no group.
func (c *candidate) groupNumber(a pci.Address) int {
	if f, ok := c.node.Snapshot.Function(a); ok && f.Group != nil {
		return *f.Group
	}
	return -1
}

// secondOfGroup returns the refusal of a function whose VM already gets another function of the group.
func (c *candidate) secondOfGroup(second, first pci.Address, group int) *rule.Verdict {
	r := &rule.Verdict{
		Code: rule.SeveralOfIOMMUGroup, Driver: c.f.Driver, Culprit: &first,
		Text: fmt.Sprintf("the claim has %s and %s of IOMMU group %d, and Kata plugs one function of a group into a VM", first, second, group),
		Fix:  fmt.Sprintf("claim one of the two; for both, %s", isolation.Separate(c.node.Snapshot, c.f)),
	}
	if c.f.IsNVSwitch() && !c.tolerated(rule.PeerToPeerPossible) { // one of the two alone would be refused: see wholeBoard
		r.Fix = isolation.Separate(c.node.Snapshot, c.f)
	}
	if c.claimed.VFIO.Companions == v1alpha1.CompanionsGive {
		r.Culprit = &second
		r.Text = fmt.Sprintf("companions: Give has the VM get %s and %s of IOMMU group %d, and Kata plugs one function of a group into a VM", first, second, group)
		r.Fix = "set `companions: Withhold`: the companions stay on their VFIO driver, and no other VM gets them"
	}
	return r
}

// pluggedByGroup refuses a function if Kata would plug another function of its IOMMU group in its place.
func (c *candidate) pluggedByGroup() *rule.Verdict {
	if c.backend() != v1alpha1.BackendGroup || c.node.HotPlug {
		return nil
	}
	first, ok := c.pluggedWith(c.f)
	if !ok || first.Address == c.f.Address {
		return nil
	}
	return c.mate(first, rule.OtherOfIOMMUGroup,
		fmt.Sprintf("the VM gets %s by the node of IOMMU group %d, of which Kata plugs the first function, %s", c.f.Address, *c.f.Group, first.Address),
		fmt.Sprintf("%s, or claim another device; else %s", c.byFunction(), isolation.Separate(c.node.Snapshot, c.f)))
}

// pluggedWith returns the function that Kata cold-plugs for the node of f's group: the first one that Kata does not
// regard as a bridge.
func (c *candidate) pluggedWith(f *device.Function) (*device.Function, bool) {
	g, ok := c.node.Snapshot.GroupWith(f)
	if !ok {
		return nil, false
	}
	for _, a := range g.Members {
		m, ok := c.node.Snapshot.Function(a)
		if !ok {
			continue
		}
		if sub := m.Class.Sub(); sub != pci.ClassHostBridge && sub != pci.ClassPCIBridge {
			return m, true
		}
	}
	return nil, false
}

// byFunction says how the VM can get a function by the function's own VFIO node.
func (c *candidate) byFunction() string {
	if c.node.Snapshot.Host.IOMMUFD {
		return "leave `backend: Group` out of the parameters"
	}
	return "use a kernel with iommufd (CONFIG_IOMMUFD and CONFIG_VFIO_DEVICE_CDEV)"
}

package isolation

// Fix returns what to do about a reason or note with the code, for whatever device: the
// text of the audit's rules. A verdict's own fix says the same, with addresses and values
// where they help.
func Fix(code Code) string {
	switch code {
	case NoGroup:
		return "switch on VT-d, AMD-Vi or the SMMU in the firmware setup, boot with `intel_iommu=on` on Intel, and remove any `iommu=off`"
	case NoIOMMU:
		return "remove enable_unsafe_noiommu_mode from /etc/modprobe.d and the kernel command line, enable the IOMMU, and reboot"
	case NoInterruptRemapping:
		return "switch on interrupt remapping with VT-d or AMD-Vi in the firmware setup, remove `intremap=off` from the kernel command line, and reboot"
	case UnsafeInterrupts:
		return UnsafeInterruptsFix("/sys/module/<module>/parameters/allow_unsafe_interrupts")
	case PeerToPeer:
		return "switch ACS of the port on: " + acsAtBootBy("<flags>@<port>") + "; where the port has no ACS, " + otherSlotFix("the device")
	case NoReset:
		return noResetFix("reset_method")
	case WeakReset:
		return "use a device with FLR, or one that is alone below its port so that the bus can be reset"
	case Dead:
		return deadFix("/sys/bus/pci/devices/<address>/remove")
	case DirectRegion:
		return "switch off what shares memory with the device in the firmware setup (RMRR, \"shared memory features\", legacy USB), or ask the platform's vendor"
	case ATSEnabled:
		return "boot with `pci=noats`, or switch ATS off in the device's firmware, unless you trust its firmware against its tenant"
	case IdentityDomain:
		return identityFix("/sys/kernel/iommu_groups/<group>/type")
	case ACSUnproven:
		return "on a stock kernel this is a quirk by the vendor's word (drivers/pci/quirks.c, pci_dev_acs_enabled), which a waiver can accept; make sure that `pcie_acs_override` is not on the kernel command line"
	case ACSUnreadable:
		return "run as root with CAP_SYS_ADMIN in the initial user namespace to read all of configuration space; Intel PCH ports with 32-bit ACS registers stay unreadable"
	default:
		return ""
	}
}

// otherSlotFix is for a device that no switch of ACS helps.
func otherSlotFix(device string) string {
	return "move " + device + " to a slot whose ports have ACS, or enable ACS (for VFs also ARI) in the firmware setup"
}

// UnsafeInterruptsFix is the fix of [UnsafeInterrupts] for a module's parameter.
func UnsafeInterruptsFix(parameter string) string {
	return "`echo N > " + parameter + "`, and remove allow_unsafe_interrupts from /etc/modprobe.d and the kernel command line"
}

func noResetFix(attribute string) string {
	return "`echo default > " + attribute + "` if somebody cleared it; else use a device with FLR, or one that is alone below its port"
}

func deadFix(remove string) string {
	return "check its power and seating, then `echo 1 > " + remove + "` and `echo 1 > /sys/bus/pci/rescan`, or power-cycle the node"
}

func identityFix(file string) string {
	return "boot without `iommu=pt`, or `echo DMA > " + file + "` while no member has a driver"
}

// acsAtBootBy says how the kernel gets to switch ACS on. It does so by itself for IOMMUs
// unless an argument says otherwise: disable_acs_redir switches redirection off, and
// config_acs sets each switch (Documentation/admin-guide/kernel-parameters.txt, since 6.11).
func acsAtBootBy(value string) string {
	return "take `pci=disable_acs_redir=` off the kernel command line if it names the port, or boot with `pci=config_acs=" +
		value + "` (Linux 6.11 or later)"
}

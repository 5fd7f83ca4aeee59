package board

// goodIommu sets up what the checks of IOM look at.
func (t *Tree) goodIommu() {
	t.Put("proc/cmdline", "BOOT_IMAGE=/boot/vmlinuz root=/dev/sda1 ro intel_iommu=on iommu.strict=1\n")
	t.SetParameter("vfio", "enable_unsafe_noiommu_mode", "N")
	t.SetParameter("iommufd", "allow_unsafe_interrupts", "N")
	t.SetParameter("vfio_iommu_type1", "dma_entry_limit", "65535")
	t.PutDMAR(0x05)
	t.Put("sys/firmware/efi/fw_platform_size", "64\n")
	t.Put("proc/sys/kernel/tainted", "0\n")
}

// PutDMAR makes the firmware's table of VT-d with the flags.
func (t *Tree) PutDMAR(flags byte) {
	t.TB.Helper()
	table := make([]byte, 48)
	copy(table, "DMAR")
	table[4], table[36], table[37] = 48, 45, flags
	t.Put("sys/firmware/acpi/tables/DMAR", string(table))
}

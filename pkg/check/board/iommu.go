package board

// goodIommu sets up what the checks of IOM look at.
func (t *Tree) goodIommu() {
	t.Put("proc/cmdline", "BOOT_IMAGE=/boot/vmlinuz root=/dev/sda1 ro intel_iommu=on iommu.strict=1\n")
	t.SetParameter("vfio", "enable_unsafe_noiommu_mode", "N")
}

package kernelargs

import (
	"slices"
	"strings"
)

// Weakening is an argument of the kernel that weakens the isolation of devices. Bootstrap refuses it, and the rule of
// the audit fails for it.
type Weakening struct {
	// Rule is the ID of the audit's rule.
	Rule string
	// Name is the argument's name. The name of a module's parameter begins with the module:
	// "vfio.enable_unsafe_noiommu_mode".
	Name string
	// Word is the bad word of the value, which may have several words separated by commas. It is empty if every value
	// is bad.
	Word string
	// Why completes the sentence "NAME=VALUE ...".
	Why string
	// Undo is the word that undoes an earlier Word; empty if none does.
	Undo string
}

// Weakenings returns the arguments with bad words.
//
// iommu=noforce is not one of them: it is the kernel's default (iommu_setup in arch/x86/kernel/pci-dma.c, and iommu= in
// Documentation/admin-guide/kernel-parameters.txt). Of intel_iommu and intremap, the last of on and off applies. The other words set a flag
// that no word clears (intel_iommu_setup in drivers/iommu/intel/iommu.c, setup_irqremap in drivers/iommu/irq_remapping.c).
func Weakenings() []Weakening {
	return []Weakening{
		// The override works only with this argument. Several distributions' kernels have the patch, and without the
		// argument they behave like a stock kernel.
		{Rule: "ACS-006", Name: "pcie_acs_override", Why: "makes the kernel assume isolation that the hardware does not have"},
		{Rule: "IOM-008", Name: "intremap", Word: "off", Why: "disables interrupt remapping", Undo: "on"},
		{Rule: "IOM-008", Name: "nointremap", Why: "disables interrupt remapping"},
		{Rule: "IOM-008", Name: "intremap", Word: "nosid", Why: "disables source checks of interrupts"},
		{Rule: "IOM-011", Name: "iommu", Word: "off", Why: "switches DMA translation off"},
		{Rule: "IOM-011", Name: "iommu", Word: "soft", Why: "replaces the IOMMU by bounce buffers"},
		{Rule: "IOM-011", Name: "intel_iommu", Word: "off", Why: "switches DMA translation off", Undo: "on"},
		{Rule: "IOM-011", Name: "intel_iommu", Word: "igfx_off", Why: "switches DMA translation off for the processor's own GPU"},
		{Rule: "IOM-011", Name: "intel_iommu", Word: "tboot_noforce", Why: "permits a measured boot without DMA translation"},
		{Rule: "IOM-011", Name: "amd_iommu", Word: "off", Why: "switches DMA translation off"},
	}
}

// DisableDenylist is the parameter that a blueprint may set.
const DisableDenylist = "vfio-pci.disable_denylist"

// WeakeningParameters returns the parameters of modules that weaken isolation if they are on. They can be arguments of the kernel,
// too.
func WeakeningParameters() []Weakening {
	const forge = "lets VMs have devices that can forge interrupts"
	return []Weakening{
		{Rule: "IOM-003", Name: "vfio.enable_unsafe_noiommu_mode", Why: "lets VMs have devices without an IOMMU"},
		{Rule: "IOM-006", Name: "vfio_iommu_type1.allow_unsafe_interrupts", Why: forge},
		{Rule: "IOM-007", Name: "iommufd.allow_unsafe_interrupts", Why: forge},
		{Rule: "VFIO-001", Name: DisableDenylist, Why: "lets VMs have devices that the kernel lists as exploitable"},
	}
}

// Matches reports whether a value has the bad word.
func (w *Weakening) Matches(value string) bool {
	return w.Word == "" || slices.Contains(strings.Split(value, ","), w.Word)
}

// IsUndone reports whether the last of a command line's values undoes the bad word.
func (w *Weakening) IsUndone(values []string) bool {
	if w.Undo == "" {
		return false
	}
	last := ""
	for word := range strings.SplitSeq(strings.Join(values, ","), ",") {
		if word == w.Word || word == w.Undo {
			last = word
		}
	}
	return last == w.Undo
}

package isolation

import (
	"fmt"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

const chipNames = "/sys/kernel/irq/*/chip_name"

// interrupts checks that a device can't write another's interrupt.
func (j *judging) interrupts() {
	remapped := j.remapped()
	for _, parameter := range j.s.Host.UnsafeInterrupts {
		j.unsafeParameter(sysPath(parameter), remapped)
	}
}

// Interrupts are the node's interrupt chips that matter for a function.
type Interrupts struct {
	// Safe are the chips that remap, Plain the chips that could but don't.
	Safe, Plain []string
}

// Remapped reports whether interrupts are remapped; known is false if no
// interrupt in use shows it.
func (i *Interrupts) Remapped() (remapped, known bool) {
	return len(i.Plain) == 0 && len(i.Safe) > 0, len(i.Plain)+len(i.Safe) > 0
}

// JudgeInterrupts sorts the node's interrupt chips for f.
//
// The kernel prefixes the chip name of a remapped MSI: "IR-" on Intel and AMD (msi_parent_ops in
// drivers/iommu/{intel/irq_remapping,amd/iommu}.c), and "ITS-" if an Arm GIC ITS translates by device id, which
// the kernel counts as isolated MSI (IRQ_DOMAIN_FLAG_ISOLATED_MSI in irq-gic-v3-its.c). Socionext's pre-ITS is
// not isolated, but has the same prefix. Remapping is a property of the whole node, so one chip without it is a
// proof against all.
func JudgeInterrupts(s *device.Snapshot, f *device.Function) Interrupts {
	var found Interrupts
	for _, chip := range s.Host.IRQChips {
		switch {
		// This case comes first: "IR-PCI-MSI" also contains "PCI-MSI", which concerns looks for.
		case strings.HasPrefix(chip, "IR-"), strings.HasPrefix(chip, "ITS-"):
			found.Safe = append(found.Safe, chip)
		case concerns(f, chip):
			found.Plain = append(found.Plain, chip)
		}
	}
	return found
}

// remapped reports whether interrupts of f are remapped, and adds a reason if they are not or if that is unknown.
func (j *judging) remapped() bool {
	found := JudgeInterrupts(j.s, j.f)
	seen := j.saw(chipNames, strings.Join(j.s.Host.IRQChips, " "))
	r := rule.Verdict{Code: rule.NoInterruptRemapping, Evidence: seen}
	remapped, known := found.Remapped()
	switch {
	case remapped:
		return true
	case known:
		r.Text = fmt.Sprintf("interrupts are not remapped (chip %s): %s could forge interrupts of the host and of other VMs", strings.Join(found.Plain, ", "), j.f.Address)
		r.Fix = FixOn(j.s, rule.NoInterruptRemapping)
	default:
		r.Text = fmt.Sprintf("no MSI interrupt is in use on this node, so it is unknown whether those of %s would be remapped", j.f.Address)
		r.Fix = "ensure that /sys/kernel/irq exists and a device uses MSI; a captured tree must contain sys/kernel/irq/*/chip_name"
	}
	j.reason(r)
	return false
}

// concerns reports whether a chip that does not remap serves PCI functions such as f. Timers and the IOMMU's own
// DMAR-MSI don't count, since no device owns them. Nor does Intel's VMD, except for functions in a domain of its
// making, whose interrupts go through it (drivers/pci/controller/vmd.c). Its chip is "VMD-MSI" on older kernels, and
// "VMD-PCI-MSIX" on newer ones (vmd_msi_parent_ops), which contains the name of a plain chip.
func concerns(f *device.Function, chip string) bool {
	if strings.HasPrefix(chip, "VMD-") {
		return f.Address.Domain > 0xffff
	}
	return strings.Contains(chip, "PCI-MSI") || strings.HasPrefix(chip, "Hyper-V PCIe MSI")
}

// unsafeParameter reports a module parameter that lets VFIO work without interrupt remapping. While interrupts
// are remapped, it has no effect.
func (j *judging) unsafeParameter(path string, remapped bool) {
	r := rule.Verdict{
		Code:     rule.UnsafeInterruptsAllowed,
		Text:     fmt.Sprintf("%s is on: VFIO assigns functions although they can forge interrupts", path),
		Fix:      fixAt(rule.UnsafeInterruptsAllowed, "/sys/module/<module>/parameters/allow_unsafe_interrupts", path),
		Evidence: j.saw(path, "Y"),
	}
	if !remapped {
		j.reason(r)
		return
	}
	r.Severity = IdleUnsafeInterrupts
	r.Text = fmt.Sprintf("%s is on: it has no effect while interrupts are remapped, but hides the problem if they are not", path)
	j.note(r)
}

// sysPath returns a path below /sys in its full form.
func sysPath(path string) string {
	return "/sys/" + strings.TrimPrefix(strings.TrimPrefix(path, "/"), "sys/")
}

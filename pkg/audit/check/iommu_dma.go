package check

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
)

// translationChecks returns the checks of DMA translation.
func translationChecks() []Check {
	return []Check{
		{Rule: finding.Rule{
			ID: "IOM-011", Title: "No kernel argument switches DMA translation off", Severity: isolation.Critical, Cheap: true,
			Why:     "an IOMMU that is off, or leaves devices out, confines no DMA",
			Fix:     "take the argument out of the boot loader's configuration and reboot",
			Verify:  "grep -oE '(intel_|amd_|)iommu=[^ ]*' /proc/cmdline",
			Sources: []string{"Linux: Documentation/admin-guide/kernel-parameters.txt (iommu=, intel_iommu=, amd_iommu=)"},
		}, Judge: translationNotOff},
		{Rule: finding.Rule{
			ID: "IOM-012", Title: "The IOMMU is asked for on the kernel's command line", Severity: isolation.Low, Cheap: true,
			Why:     "whether a kernel uses VT-d unasked is its builder's choice, so that an update of the kernel may end it",
			Fix:     "add `intel_iommu=on` to the boot loader's configuration",
			Verify:  "grep -o 'intel_iommu=[^ ]*' /proc/cmdline",
			Sources: []string{"Linux: drivers/iommu/intel/Kconfig (INTEL_IOMMU_DEFAULT_ON)"},
		}, Judge: iommuAskedFor},
		{Rule: finding.Rule{
			ID: "IOM-013", Title: "Functions that are given away are translated while VFIO does not have them too", Severity: isolation.Medium, Cheap: true,
			Why:     "with an identity domain a function reaches all memory before VFIO takes it and after it lets go, with what the last tenant left running in it",
			Fix:     isolation.Fix(isolation.IdentityDomain),
			Verify:  "grep -H . /sys/kernel/iommu_groups/*/type",
			Sources: []string{"Linux: Documentation/ABI/testing/sysfs-kernel-iommu_groups"},
		}, Judge: func(n *facts.Node) []finding.Finding {
			said := each(n, func(f *device.Function) []finding.Finding { return translated(n, f) })
			return showing(said, assignable(n), groupFile(n, "type"))
		}},
		{Rule: finding.Rule{
			ID: "IOM-014", Title: "The node's own network and storage functions are translated", Severity: isolation.Medium, Cheap: true,
			Why:     "a function that handles tenants' data, as a PF does for its VFs, reaches all memory once its firmware is taken over",
			Fix:     "boot with `iommu.passthrough=0` and without `iommu=pt`",
			Verify:  "grep -H . /sys/kernel/iommu_groups/*/type",
			Sources: []string{"Linux: Documentation/ABI/testing/sysfs-kernel-iommu_groups", "Linux: Documentation/admin-guide/kernel-parameters.txt (iommu.passthrough=)"},
		}, Judge: hostTranslated},
		{Rule: finding.Rule{
			ID: "IOM-015", Title: "PFs lose access to memory at once when their driver takes it back", Severity: isolation.Low, Cheap: true,
			Why:     "with lazy invalidation (DMA-FQ) a PF keeps reaching memory for a while that was given to somebody else; mappings of VFIO are never lazy",
			Fix:     "boot with `iommu.strict=1`",
			Verify:  "grep -H . /sys/kernel/iommu_groups/*/type",
			Sources: []string{"Linux: Documentation/admin-guide/kernel-parameters.txt (iommu.strict=)"},
		}, Judge: strictPFs},
		{Rule: finding.Rule{
			ID: "IOM-021", Title: "VFIO bounds the mappings of one VM", Severity: isolation.Medium, Cheap: true,
			Why:     "without the bound a VM has the node's kernel use up its memory for DMA mappings",
			Fix:     "`echo 65535 > /sys/module/vfio_iommu_type1/parameters/dma_entry_limit`, and take the option out of modprobe.d and the kernel's command line",
			Verify:  "cat /sys/module/vfio_iommu_type1/parameters/dma_entry_limit",
			Sources: []string{"Linux: drivers/vfio/vfio_iommu_type1.c (dma_entry_limit)", "CVE-2019-3882"},
		}, Judge: mappingsBounded},
		{Rule: finding.Rule{
			ID: "IOM-023", Title: "DMA is confined before the kernel sets the IOMMU up", Severity: isolation.Low,
			Why:     "between the firmware and the kernel a device whose firmware a tenant took over writes to the memory of the boot",
			Fix:     "add `efi=disable_early_pci_dma` to the boot loader's configuration, or switch kernel DMA protection on in the firmware setup; test it first, since some machines don't boot with the argument",
			Verify:  "grep -o ' efi=[^ ]*' /proc/cmdline; od -An -tx1 -j37 -N1 /sys/firmware/acpi/tables/DMAR",
			Sources: []string{"Linux: Documentation/admin-guide/kernel-parameters.txt (efi=)", "Linux: include/linux/dmar.h (DMAR_PLATFORM_OPT_IN)", "Linux: drivers/iommu/amd/amd_iommu_types.h (IOMMU_IVINFO_DMA_REMAP)"},
		}, Judge: earlyDMA},
	}
}

func translationNotOff(n *facts.Node) []finding.Finding {
	var found []finding.Finding
	for _, argument := range []struct {
		name string
		bad  map[string]string
	}{
		{"iommu", map[string]string{
			"off": "switches the IOMMU off", "soft": "uses bounce buffers in place of the IOMMU",
		}},
		{"intel_iommu", map[string]string{
			"off": "switches the IOMMU off", "igfx_off": "leaves the graphics out", "tboot_noforce": "lets a measured boot do without",
		}},
		{"amd_iommu", map[string]string{"off": "switches the IOMMU off"}},
	} {
		found = append(found, badArgument(n, argument.name, badWords(argument.bad))...)
	}
	failed := slices.DeleteFunc(slices.Clone(found), func(f finding.Finding) bool { return f.State == finding.Pass })
	if len(failed) == 0 {
		return pass("no kernel argument weakens it", n.Cmdline())
	}
	return failed
}

func iommuAskedFor(n *facts.Node) []finding.Finding {
	if len(n.VTdUnits()) == 0 {
		return notApplicable("there is no VT-d; other IOMMUs are on unless switched off")
	}
	for _, a := range slices.Concat(n.RunningArguments("intel_iommu"), n.NextArguments("intel_iommu")) {
		if slices.Contains(strings.Split(a.Value, ","), "on") {
			return pass("intel_iommu=on", a.Line)
		}
	}
	if cmdline := n.Cmdline(); !cmdline.OK() {
		return unknown("what the kernel was booted with", cmdline)
	}
	return fail("the IOMMU is on by the kernel's own choice", n.Cmdline())
}

// translated judges the default domain of a function's group.
func translated(n *facts.Node, f *device.Function) []finding.Finding {
	group, ok := n.Snapshot.GroupOf(f)
	if !ok {
		return ungrouped(n, f, fail(f.Address.String()+" is in no IOMMU group, so nothing translates its DMA", groupOf(f)))
	}
	switch group.Type {
	case "":
		return unknown("the type of IOMMU group "+strconv.Itoa(group.Number), groupType(n, group))
	case "identity":
		found := fail(fmt.Sprintf("DMA of %s is not translated but by VFIO: the default domain of group %d is identity", f.Address, group.Number), groupType(n, group))
		return advised(found, n.Verdict(f).Notes, isolation.IdentityDomain)
	}
	return nil
}

// ungrouped advises of a function that no IOMMU has what gets it one: how the IOMMU
// translates is the second question.
func ungrouped(n *facts.Node, f *device.Function, found []finding.Finding) []finding.Finding {
	return advised(found, n.Verdict(f).Reasons, isolation.NoGroup)
}

// advised gives findings the fix of a reason with the code, where there is one.
func advised(found []finding.Finding, reasons []isolation.Reason, code isolation.Code) []finding.Finding {
	r, ok := reasonOf(reasons, code)
	for i := range found {
		if ok {
			found[i].Remediation = r.Fix
		}
	}
	return found
}

// groupType reads the type of a group's default domain, for evidence.
func groupType(n *facts.Node, group *device.Group) facts.Fact {
	return n.Read(fmt.Sprintf("sys/kernel/iommu_groups/%d/type", group.Number))
}

// hostTranslated looks at what drivers of the node use.
func hostTranslated(n *facts.Node) []finding.Finding {
	var found []finding.Finding
	var used []*device.Function
	for _, f := range n.Functions(device.PFType, device.NVMe) {
		if f.Driver == "" || device.IsVFIO(f.Driver) {
			continue
		}
		used = append(used, f)
		judged := translated(n, f)
		if f.PF != nil && len(judged) > 0 {
			judged[0].Devices = f.PF.VFs
		}
		found = append(found, about(f, judged)...)
	}
	switch {
	case len(used) == 0:
		return notApplicable("the node uses no network or storage function")
	case len(found) == 0:
		return showing(pass(count(len(used), "function")), used, groupFile(n, "type"))
	}
	return found
}

// strictPFs looks at PFs whose VFs tenants have or can get.
func strictPFs(n *facts.Node) []finding.Finding {
	var found []finding.Finding
	var looked []*device.Function
	for _, f := range n.Functions() {
		if f.PF == nil || !slices.ContainsFunc(f.PF.VFs, n.IsAvailable) {
			continue
		}
		looked = append(looked, f)
		if group, ok := n.Snapshot.GroupOf(f); ok && group.Type == "DMA-FQ" {
			failed := fail(fmt.Sprintf("the domain of %s, whose VFs are given away, is lazy", f.Address), groupType(n, group))
			failed[0].Devices = f.PF.VFs
			found = append(found, about(f, failed)...)
		}
	}
	switch {
	case len(looked) == 0:
		return notApplicable("no VF is given away")
	case len(found) == 0:
		return showing(pass(count(len(looked), "PF")), looked, groupFile(n, "type"))
	}
	return found
}

// maxMappings is VFIO's own default for one container.
const maxMappings = 65535

func mappingsBounded(n *facts.Node) []finding.Finding {
	limit := n.Parameter("vfio_iommu_type1", "dma_entry_limit")
	good := strconv.Itoa(maxMappings)
	if next, ok := limit.Next(); ok && !tooMany(next) {
		good = next
	}
	switch {
	case limit.Running.OK() && tooMany(limit.Running.Value):
		return pending(fail("a container may have "+limit.Running.Value+" DMA mappings", limit.Running), &limit, good)
	case !limit.Running.Known():
		return unknown("the bound", limit.Running)
	case limit.Running.Status == facts.Absent:
		return setLater(notApplicable("VFIO type 1 is not loaded", limit.Running), &limit, good)
	}
	return setLater(pass(limit.Running.Value+" mappings", limit.Running), &limit, good)
}

func tooMany(limit string) bool {
	n, err := strconv.ParseUint(limit, 0, 64)
	return err != nil || n > maxMappings
}

// earlyDMA asks the kernel's argument first, then the firmware's word.
func earlyDMA(n *facts.Node) []finding.Finding {
	efi := n.Exists("sys/firmware/efi")
	if efi.Status == facts.Absent {
		return notApplicable("the node does not boot by EFI", efi)
	}
	for _, a := range n.RunningArguments("efi") {
		if slices.Contains(strings.Split(a.Value, ","), "disable_early_pci_dma") {
			return pass("the kernel takes bus mastering from bridges until the IOMMU is on", a.Line)
		}
	}
	flags, dmar := n.DMAR()
	remaps, ivrs := n.IVRSRemaps()
	switch {
	case dmar.OK() && flags.DMAOptIn, ivrs.OK() && remaps:
		return pass("the firmware says that it confines DMA until the kernel takes over", dmar, ivrs)
	case !dmar.Known() || !ivrs.Known():
		return unknown("whether the firmware confines DMA", dmar, ivrs)
	case dmar.Status == facts.Absent && ivrs.Status == facts.Absent:
		return notApplicable("the firmware has no table of an IOMMU", dmar, ivrs)
	}
	return fail("neither the firmware nor the kernel confines DMA before the IOMMU is on", n.Cmdline(), dmar, ivrs)
}

package check

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/facts/runtimes"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// translationChecks are about DMA translation.
func translationChecks() []Check {
	return []Check{
		ofSettings("IOM-011"),
		{ID: "IOM-012", Judge: iommuAskedFor},
		{ID: "IOM-013", Judge: func(n *facts.Node) Answer {
			return each(n, groupFile(n, "type"), func(f *device.Function) Answer { return translated(n, f) })
		}},
		{ID: "IOM-014", Judge: hostTranslated},
		{ID: "IOM-015", Judge: strictPFs},
		{ID: "IOM-021", Judge: mappingsBounded},
		{ID: "IOM-023", Judge: earlyDMA},
	}
}

func iommuAskedFor(n *facts.Node) Answer {
	if len(n.VTdUnits()) == 0 {
		return notApplicable("the node has no VT-d; other IOMMUs are on by default")
	}
	// An argument for the next boot is enough: the node has units, so the IOMMU is on today by the kernel's default.
	for _, a := range slices.Concat(n.RunningArguments("intel_iommu"), n.NextArguments("intel_iommu")) {
		if slices.Contains(strings.Split(a.Value, ","), "on") {
			return pass("intel_iommu=on", a.Line)
		}
	}
	if cmdline := n.Cmdline(); !cmdline.OK() {
		return unknown("the kernel command line", cmdline)
	}
	return fail("only the kernel's default enables the IOMMU", n.Cmdline())
}

// translated judges the default domain of a function's group.
func translated(n *facts.Node, f *device.Function) Answer {
	group, ok := n.Snapshot.GroupWith(f)
	if !ok {
		return ungrouped(n, f, fail(f.Address.String()+" is in no IOMMU group: nothing translates its DMA", groupFact(f)))
	}
	kind := groupFile(n, "type") // read as evidence only
	switch group.Type {
	case "":
		return unknown("the type of IOMMU group "+strconv.Itoa(group.Number), kind(f)...)
	case "identity":
		found := fail(fmt.Sprintf("only VFIO translates the DMA of %s: the default domain of group %d is identity", f.Address, group.Number), kind(f)...)
		return advised(found, n.Judgment(f).Notes, rule.IdentityDefaultDomain)
	}
	return nil
}

// ungrouped adds the fix that puts a function into an IOMMU group, because translation is only the second question
// then.
func ungrouped(n *facts.Node, f *device.Function, found Answer) Answer {
	return advised(found, n.Judgment(f).Reasons, rule.NoIOMMUGroup)
}

// advised gives findings the fix of a reason with the code, if there is one.
func advised(found Answer, reasons []rule.Verdict, code rule.Code) Answer {
	if r, ok := findReason(reasons, code); ok {
		return found.fix(r.Fix)
	}
	return found
}

// hostTranslated checks the functions that drivers of the node use. Storage functions are more than NVMe drives: a RAID controller or an
// HBA has firmware and does DMA, too.
func hostTranslated(n *facts.Node) Answer {
	used := functionsWhere(n, func(f *device.Function) bool {
		isKind := f.Type == device.PFType || f.Type == device.NVMe || f.Class.Base() == pci.BaseStorage
		return isKind && f.Driver != "" && !onVFIODriver(f)
	})
	found := over(used, func(f *device.Function) Answer {
		judged := translated(n, f).on(f)
		if f.PF != nil {
			judged.reaching(f.PF.VFs...)
		}
		return judged
	})
	return conclude(found, used, "function", "the node uses no network or storage function itself", groupFile(n, "type"))
}

// strictPFs checks PFs whose VFs tenants hold or can get.
func strictPFs(n *facts.Node) Answer {
	pfs := slices.DeleteFunc(n.Functions(), func(f *device.Function) bool { return f.PF == nil || !slices.ContainsFunc(f.PF.VFs, n.IsAvailable) })
	found := over(pfs, func(f *device.Function) Answer {
		// DMA-FQ invalidates in batches, so the IOMMU still permits old mappings for a while
		// (Documentation/ABI/testing/sysfs-kernel-iommu_groups).
		if group, ok := n.Snapshot.GroupWith(f); !ok || group.Type != "DMA-FQ" {
			return nil
		}
		return fail(fmt.Sprintf("the domain of %s, a PF with assignable VFs, invalidates lazily", f.Address), groupFile(n, "type")(f)...).reaching(f.PF.VFs...).on(f)
	})
	return conclude(found, pfs, "PF", "no VF is assignable", groupFile(n, "type"))
}

// maxMappings is VFIO's own default for one container.
const maxMappings = 65535

func mappingsBounded(n *facts.Node) Answer {
	limit := n.Parameter("vfio_iommu_type1", "dma_entry_limit")
	good := strconv.Itoa(maxMappings)
	// A lower limit in a file is the site's decision, so it counts as the good value.
	if next, ok := limit.Next(); ok && !tooMany(next) {
		good = next
	}
	switch {
	case limit.Running.OK() && tooMany(limit.Running.Value):
		return pending(fail("a VM can create "+limit.Running.Value+" DMA mappings", limit.Running), &limit, good).fix(moreMappingsFix(n))
	case !limit.Running.Known():
		return unknown("the limit", limit.Running)
	case limit.Running.Status == facts.Absent:
		return setLater(notApplicable("VFIO type 1 is not loaded", limit.Running), &limit, good)
	}
	found := setLater(pass(limit.Running.Value+" mappings", limit.Running), &limit, good)
	if handler := confidentialHandler(n); handler != "" && found[0].State == finding.Pass {
		return tooFewFor(handler, limit.Running)
	}
	return found
}

// tooFewFor leaves a limit that may be too low for confidential guests to a person. VFIO maps each of their pages
// separately, and QEMU fails to start large ones (kata-containers/kata-containers issue 11721).
func tooFewFor(handler string, limit facts.Fact) Answer {
	text := fmt.Sprintf("dma_entry_limit is %s, and VMs of handler %s are confidential: with a GPU they can need more mappings, and then fail to start "+
		"(\"VFIO_MAP_DMA failed: No space left on device\")", limit.Value, handler)
	return say(finding.Manual, text, []facts.Fact{limit}).
		fix("if yours fail to start, set `options vfio_iommu_type1 dma_entry_limit=` to what they need in /etc/modprobe.d, and accept that with a waiver of IOM-021")
}

// moreMappingsFix is for nodes whose confidential guests may not start with VFIO's default; empty for others.
func moreMappingsFix(n *facts.Node) string {
	handler := confidentialHandler(n)
	if handler == "" {
		return ""
	}
	return fmt.Sprintf("accept it with a waiver of IOM-021, since VMs of handler %s are confidential: with a GPU they can need more than %d mappings. "+
		"Where yours start with fewer, set that limit", handler, maxMappings)
}

// confidentialHandler returns the first handler whose VMs are confidential, or "".
func confidentialHandler(n *facts.Node) string {
	r := runtimes.Of(n)
	for _, h := range r.Kata() {
		if k := runtimes.LoadKata(n, &h); k.OK() && confidential(n, &h, k) {
			return h.Name
		}
	}
	return ""
}

func tooMany(limit string) bool {
	n, err := strconv.ParseUint(limit, 0, 64)
	return err != nil || n > maxMappings
}

// earlyDMA checks the kernel's argument first, then the firmware's tables.
func earlyDMA(n *facts.Node) Answer {
	efi := n.Exists("sys/firmware/efi")
	if efi.Status == facts.Absent {
		return notApplicable("the node does not boot by UEFI", efi)
	}
	for _, a := range n.RunningArguments("efi") {
		if slices.Contains(strings.Split(a.Value, ","), "disable_early_pci_dma") {
			return pass("the kernel disables bus mastering of bridges until the IOMMU is on", a.Line)
		}
	}
	flags, dmar := n.DMAR()
	remaps, ivrs := n.IVRSRemaps()
	switch {
	// By its make, a node has one of the two tables. The other one is absent.
	case dmar.OK() && flags.DMAOptIn, ivrs.OK() && remaps:
		return pass("the firmware confines DMA until the kernel takes over", dmar, ivrs)
	case !dmar.Known() || !ivrs.Known():
		return unknown("whether the firmware confines DMA", dmar, ivrs)
	case dmar.Status == facts.Absent && ivrs.Status == facts.Absent:
		return notApplicable("the firmware has no IOMMU table", dmar, ivrs)
	}
	return fail("neither the firmware nor the kernel confines DMA before the IOMMU is on", n.Cmdline(), dmar, ivrs)
}

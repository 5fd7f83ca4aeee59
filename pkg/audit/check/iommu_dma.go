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
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// translationChecks are about DMA translation.
func translationChecks() []Check {
	return []Check{
		{Rule: finding.Rule{
			ID: "IOM-011", Title: "Ensure that no kernel argument disables DMA translation", Severity: isolation.Critical, Cheap: true,
			Why:     "A disabled IOMMU, or one that skips devices, confines no DMA.",
			Fix:     "remove the argument from the boot loader's configuration and reboot",
			Verify:  "grep -oE '(intel_|amd_|)iommu=[^ ]*' /proc/cmdline",
			Sources: []string{"Linux: Documentation/admin-guide/kernel-parameters.txt (iommu=, intel_iommu=, amd_iommu=)"},
		}, Judge: translationNotOff},
		{Rule: finding.Rule{
			ID: "IOM-012", Title: "Ensure that the kernel command line enables the IOMMU", Severity: isolation.Low, Cheap: true,
			Why:     "The default for VT-d depends on the kernel's build. A kernel update can change it.",
			Fix:     "add `intel_iommu=on` to the boot loader's configuration",
			Verify:  "grep -o 'intel_iommu=[^ ]*' /proc/cmdline",
			Sources: []string{"Linux: drivers/iommu/intel/Kconfig (INTEL_IOMMU_DEFAULT_ON)"},
		}, Judge: iommuAskedFor},
		{Rule: finding.Rule{
			ID: "IOM-013", Title: "Ensure that assignable functions are translated even without VFIO", Severity: isolation.Medium, Cheap: true,
			Why:     "With an identity domain, a function reaches all memory before and after VFIO uses it.",
			Fix:     isolation.Fix(isolation.IdentityDomain),
			Verify:  "grep -H . /sys/kernel/iommu_groups/*/type",
			Sources: []string{"Linux: Documentation/ABI/testing/sysfs-kernel-iommu_groups"},
		}, Judge: func(n *facts.Node) Answer {
			return each(n, groupFile(n, "type"), func(f *device.Function) Answer { return translated(n, f) })
		}},
		{Rule: finding.Rule{
			ID: "IOM-014", Title: "Ensure that the node's own network and storage functions are translated", Severity: isolation.Medium, Cheap: true,
			Why:     "Compromised firmware of an untranslated function, such as a PF, reaches all memory.",
			Fix:     "boot with `iommu.passthrough=0` and without `iommu=pt`",
			Verify:  "grep -H . /sys/kernel/iommu_groups/*/type",
			Sources: []string{"Linux: Documentation/ABI/testing/sysfs-kernel-iommu_groups", "Linux: Documentation/admin-guide/kernel-parameters.txt (iommu.passthrough=)"},
		}, Judge: hostTranslated},
		{Rule: finding.Rule{
			ID: "IOM-015", Title: "Ensure that PFs lose access to unmapped memory immediately", Severity: isolation.Low, Cheap: true,
			Why:     "With lazy invalidation (DMA-FQ), a PF can briefly reach memory of another owner.",
			Fix:     "boot with `iommu.strict=1`",
			Verify:  "grep -H . /sys/kernel/iommu_groups/*/type",
			Sources: []string{"Linux: Documentation/admin-guide/kernel-parameters.txt (iommu.strict=)"},
		}, Judge: strictPFs},
		{Rule: finding.Rule{
			ID: "IOM-021", Title: "Ensure that VFIO limits the DMA mappings of a VM", Severity: isolation.Medium, Cheap: true,
			Why:     "Without the limit, a VM can exhaust kernel memory with DMA mappings.",
			Fix:     "`echo 65535 > /sys/module/vfio_iommu_type1/parameters/dma_entry_limit`, and remove the option from modprobe.d and the kernel command line",
			Verify:  "cat /sys/module/vfio_iommu_type1/parameters/dma_entry_limit",
			Sources: []string{"Linux: drivers/vfio/vfio_iommu_type1.c (dma_entry_limit)", "CVE-2019-3882"},
		}, Judge: mappingsBounded},
		{Rule: finding.Rule{
			ID: "IOM-023", Title: "Ensure that DMA is confined before the kernel enables the IOMMU", Severity: isolation.Low,
			Why:     "During boot, a device with compromised firmware can write to host memory.",
			Fix:     "add `efi=disable_early_pci_dma` to the boot loader's configuration (some machines don't boot with it), or enable kernel DMA protection in the firmware setup",
			Verify:  "grep -o ' efi=[^ ]*' /proc/cmdline; od -An -tx1 -j37 -N1 /sys/firmware/acpi/tables/DMAR",
			Sources: []string{"Linux: Documentation/admin-guide/kernel-parameters.txt (efi=)", "Linux: include/linux/dmar.h (DMAR_PLATFORM_OPT_IN)", "Linux: drivers/iommu/amd/amd_iommu_types.h (IOMMU_IVINFO_DMA_REMAP)"},
		}, Judge: earlyDMA},
	}
}

func translationNotOff(n *facts.Node) Answer {
	said := slices.Concat(
		badArgument(n, "iommu", badWords(map[string]string{"off": "disables the IOMMU", "soft": "replaces the IOMMU by bounce buffers"})),
		badArgument(n, "intel_iommu", badWords(map[string]string{
			"off": "disables the IOMMU", "igfx_off": "skips the integrated graphics", "tboot_noforce": "lets a measured boot skip the IOMMU",
		})),
		badArgument(n, "amd_iommu", badWords(map[string]string{"off": "disables the IOMMU"})),
	)
	failed := slices.DeleteFunc(said, func(f finding.Finding) bool { return f.State == finding.Pass })
	return failed.or(pass("no weakening argument", n.Cmdline()))
}

func iommuAskedFor(n *facts.Node) Answer {
	if len(n.VTdUnits()) == 0 {
		return notApplicable("the node has no VT-d; other IOMMUs are on by default")
	}
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
	group, ok := n.Snapshot.GroupOf(f)
	if !ok {
		return ungrouped(n, f, fail(f.Address.String()+" is in no IOMMU group: nothing translates its DMA", groupOf(f)))
	}
	kind := groupFile(n, "type")(f)
	switch group.Type {
	case "":
		return unknown("the type of IOMMU group "+strconv.Itoa(group.Number), kind...)
	case "identity":
		found := fail(fmt.Sprintf("only VFIO translates the DMA of %s: the default domain of group %d is identity", f.Address, group.Number), kind...)
		return advised(found, n.Verdict(f).Notes, isolation.IdentityDomain)
	}
	return nil
}

// groupsWhere returns the IOMMU groups of the node that are so.
func groupsWhere(n *facts.Node, so func(*device.Group) bool) []*device.Group {
	var found []*device.Group
	for i := range n.Snapshot.Groups {
		if g := &n.Snapshot.Groups[i]; so(g) {
			found = append(found, g)
		}
	}
	return found
}

// ungrouped advises of a function that no IOMMU has what gets it one: how the IOMMU
// translates is the second question.
func ungrouped(n *facts.Node, f *device.Function, found Answer) Answer {
	return advised(found, n.Verdict(f).Reasons, isolation.NoGroup)
}

// advised gives findings the fix of a reason with the code, where there is one.
func advised(found Answer, reasons []isolation.Reason, code isolation.Code) Answer {
	if r, ok := reasonOf(reasons, code); ok {
		return found.fix(r.Fix)
	}
	return found
}

// hostTranslated looks at what drivers of the node use.
func hostTranslated(n *facts.Node) Answer {
	used := slices.DeleteFunc(n.Functions(device.PFType, device.NVMe), func(f *device.Function) bool { return f.Driver == "" || onVFIODriver(f) })
	found := over(used, func(f *device.Function) Answer {
		judged := translated(n, f).on(f)
		if f.PF != nil {
			judged.reaching(f.PF.VFs...)
		}
		return judged
	})
	return conclude(found, used, "function", "the node uses no network or storage function itself", groupFile(n, "type"))
}

// strictPFs looks at PFs whose VFs tenants have or can get.
func strictPFs(n *facts.Node) Answer {
	pfs := slices.DeleteFunc(n.Functions(), func(f *device.Function) bool { return f.PF == nil || !slices.ContainsFunc(f.PF.VFs, n.IsAvailable) })
	found := over(pfs, func(f *device.Function) Answer {
		if group, ok := n.Snapshot.GroupOf(f); !ok || group.Type != "DMA-FQ" {
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
	if next, ok := limit.Next(); ok && !tooMany(next) {
		good = next
	}
	switch {
	case limit.Running.OK() && tooMany(limit.Running.Value):
		return pending(fail("a VM can create "+limit.Running.Value+" DMA mappings", limit.Running), &limit, good)
	case !limit.Running.Known():
		return unknown("the limit", limit.Running)
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
	case dmar.OK() && flags.DMAOptIn, ivrs.OK() && remaps:
		return pass("the firmware confines DMA until the kernel takes over", dmar, ivrs)
	case !dmar.Known() || !ivrs.Known():
		return unknown("whether the firmware confines DMA", dmar, ivrs)
	case dmar.Status == facts.Absent && ivrs.Status == facts.Absent:
		return notApplicable("the firmware has no IOMMU table", dmar, ivrs)
	}
	return fail("neither the firmware nor the kernel confines DMA before the IOMMU is on", n.Cmdline(), dmar, ivrs)
}

// groupChecks are about the members of a group, and about what the IOMMU takes a device's word for.
func groupChecks() []Check {
	return []Check{
		{Rule: finding.Rule{
			ID: "IOM-016", Title: "Ensure that the firmware shares no memory with assignable functions", Severity: isolation.High, Cheap: true,
			Why:     "A directly mapped region is host memory that the function can always reach.",
			Fix:     isolation.Fix(isolation.DirectRegion),
			Verify:  "grep -H direct /sys/kernel/iommu_groups/*/reserved_regions",
			Sources: []string{"Linux: Documentation/ABI/testing/sysfs-kernel-iommu_groups", "Linux: drivers/iommu/iommu.c (require_direct)"},
		}, Judge: func(n *facts.Node) Answer {
			return ofAssignable(n, because(n, isolation.DirectRegion, nil), groupFile(n, "reserved_regions"))
		}},
		{Rule: finding.Rule{
			ID: "IOM-017", Title: "Ensure that an IOMMU group has one tenant", Severity: isolation.Critical, Cheap: true,
			Why:     "The IOMMU can't separate functions of one group.",
			Fix:     "delete one tenant's pod, and assign the whole group to one claim; slots whose ports have ACS get groups of their own",
			Verify:  "ls /sys/kernel/iommu_groups/*/devices; ls /var/lib/kata-vfio/journal",
			Sources: []string{"Linux: Documentation/driver-api/vfio.rst"},
		}, Judge: oneTenantPerGroup},
		{Rule: finding.Rule{
			ID: "IOM-018", Title: "Ensure that no host driver uses a function in a tenant's IOMMU group", Severity: isolation.High, Cheap: true,
			Why:     "A host driver that does DMA shares the group's address space with the tenant.",
			Fix:     "unbind the function from its driver, or bind it to vfio-pci or pci-stub",
			Verify:  "for d in /sys/kernel/iommu_groups/*/devices/*; do echo $d $(basename $(readlink $d/driver)); done",
			Sources: []string{"Linux: drivers/iommu/iommu.c (iommu_group_claim_dma_owner)"},
		}, Judge: noHostDriverBeside},
		{Rule: finding.Rule{
			ID: "IOM-026", Title: "Ensure that each assignable device has its own IOMMU group", Severity: isolation.Medium, Cheap: true,
			Why:     "One claim gets all devices of a group, or none is assignable.",
			Fix:     isolation.Fix(isolation.PeerToPeer),
			Verify:  "ls -d /sys/kernel/iommu_groups/*/devices/*",
			Sources: []string{"Linux: drivers/iommu/iommu.c (pci_device_group)", "Linux: Documentation/driver-api/vfio.rst"},
		}, Judge: noMergedGroup},
		{Rule: finding.Rule{
			ID: "IOM-019", Title: "Ensure that assignable functions have ATS off", Severity: isolation.High, Cheap: true,
			Why:     "With ATS, the IOMMU trusts addresses that the device marks as translated. Compromised firmware reaches any memory.",
			Fix:     isolation.Fix(isolation.ATSEnabled),
			Verify:  "lspci -vvv | grep -E '^[0-9a-f]|ATSCtl'",
			Sources: []string{"Linux: drivers/pci/ats.c", "Linux: include/uapi/linux/pci_regs.h (PCI_ATS_CTRL_ENABLE)"},
		}, Judge: func(n *facts.Node) Answer { return switchedOff(n, "ATS") }},
		{Rule: finding.Rule{
			ID: "IOM-020", Title: "Ensure that assignable functions have page requests (PRI) and PASIDs off", Severity: isolation.Medium, Cheap: true,
			Why:     "Both share process memory with a device and widen what the kernel does for it.",
			Fix:     "disable shared virtual addressing in the function's previous driver, and reset the function",
			Verify:  "lspci -vvv | grep -E '^[0-9a-f]|PRICtl|PASIDCtl'",
			Sources: []string{"Linux: drivers/pci/ats.c", "Linux: include/uapi/linux/pci_regs.h (PCI_PRI_CTRL_ENABLE, PCI_PASID_CTRL_ENABLE)"},
		}, Judge: func(n *facts.Node) Answer { return switchedOff(n, "PRI", "PASID") }},
		{Rule: finding.Rule{
			ID: "IOM-022", Title: "Ensure that confidential guests get devices through iommufd", Severity: isolation.Medium,
			Why:     "Kata refuses confidential guests with devices from VFIO groups, which know no private memory.",
			Fix:     "run a kernel with CONFIG_IOMMUFD and CONFIG_VFIO_DEVICE_CDEV, and `modprobe iommufd`",
			Verify:  "ls -l /dev/iommu /dev/vfio/devices",
			Sources: []string{"Linux: Documentation/driver-api/vfio.rst (IOMMUFD and vfio_iommu_type1)", "Kata: kata-containers #12393, #12394"},
		}, Judge: ofChosen(confidential, hasIommufd)},
	}
}

// oneTenantPerGroup looks at the groups of what tenants have, each once.
func oneTenantPerGroup(n *facts.Node) Answer {
	held := groupsWhere(n, func(g *device.Group) bool { return len(ownersIn(n, g.Members)) > 0 })
	found := over(held, func(g *device.Group) Answer {
		tenants := n.TenantsOf(g.Members...)
		if len(tenants) < 2 {
			return nil
		}
		text := fmt.Sprintf("%[2]s share IOMMU group %[1]d: %[3]s", g.Number, strings.Join(tenants, " and "), strings.Join(ownersIn(n, g.Members), ", "))
		return fail(text, membersOf(n)(g)...).reaching(endpointsOf(n, g)...).object(fmt.Sprintf("IOMMU group %d", g.Number))
	})
	passed := pass(fmt.Sprintf("%s, each with one tenant", count(len(held), "group")), n.Journal())
	return concludeAs(found, held, passed, "no function is assigned", membersOf(n))
}

// ownersIn names the owner of each function in words.
func ownersIn(n *facts.Node, members []pci.Address) []string {
	var owners []string
	for _, a := range members {
		for _, t := range n.TenanciesOf(a) {
			owners = append(owners, fmt.Sprintf("%s has %s (claim %s)", t.Tenant(), a, t.Claim()))
		}
	}
	return owners
}

// membersOf returns a reader of the kernel's list of a group's members.
func membersOf(n *facts.Node) func(*device.Group) []facts.Fact {
	return one(func(g *device.Group) facts.Fact {
		_, list := n.List(fmt.Sprintf("sys/kernel/iommu_groups/%d/devices", g.Number))
		return list
	})
}

func endpointsOf(n *facts.Node, g *device.Group) []pci.Address {
	return addresses(slices.DeleteFunc(n.Snapshot.Members(g), (*device.Function).IsBridge))
}

// noHostDriverBeside checks the groups of functions that are on VFIO for tenants. While a function of a claim
// intentionally has its kernel driver, as a physical endpoint does, no function of its group is on VFIO.
func noHostDriverBeside(n *facts.Node) Answer {
	held := groupsWhere(n, func(g *device.Group) bool {
		return slices.ContainsFunc(n.Snapshot.Members(g), func(f *device.Function) bool { return onVFIODriver(f) && len(n.TenanciesOf(f.Address)) > 0 })
	})
	found := over(held, func(g *device.Group) Answer {
		return over(n.Snapshot.Members(g), func(f *device.Function) Answer {
			if isolation.LeavesDMA(f.Driver) {
				return nil
			}
			return fail(fmt.Sprintf("%s is on driver %s in IOMMU group %d of a tenant", f.Address, f.Driver, g.Number), attribute(f.Address, "driver", f.Driver)).
				reaching(endpointsOf(n, g)...).on(f)
		})
	})
	return conclude(found, held, "group", "no tenant has a VFIO function", func(g *device.Group) []facts.Fact {
		var drivers []facts.Fact
		for _, f := range n.Snapshot.Members(g) {
			drivers = append(drivers, driverFact(f))
		}
		return drivers
	})
}

// noMergedGroup looks at the groups of functions that tenants can get, each once.
func noMergedGroup(n *facts.Node) Answer {
	groups := groupsWhere(n, func(g *device.Group) bool { return !g.NoIOMMU && slices.ContainsFunc(g.Members, n.IsAvailable) })
	found := over(groups, func(g *device.Group) Answer {
		devices := joinedIn(n, g)
		if len(devices) < 2 {
			return nil
		}
		return merged(n, g, devices)
	})
	return conclude(found, groups, "group", "no assignable function is in an IOMMU group", membersOf(n))
}

// joinedIn names the devices of a group, each by its first function. A VF is one by
// itself: it is there to be given out alone.
func joinedIn(n *facts.Node, g *device.Group) []string {
	var names []string
	slots := map[pci.Address]bool{}
	for _, a := range endpointsOf(n, g) {
		slot := a
		if f, ok := n.Snapshot.Function(a); ok && f.VF == nil {
			slot.Function = 0
		}
		if !slots[slot] {
			slots[slot] = true
			names = append(names, a.String())
		}
	}
	return names
}

// merged says which devices a group joins, by which ports, and what would part them.
func merged(n *facts.Node, g *device.Group, devices []string) Answer {
	text := fmt.Sprintf("IOMMU group %d joins %s: %s", g.Number, count(len(devices), "device"), listOf(devices))
	ports := joining(n, g)
	var registers []facts.Fact
	for _, p := range ports {
		registers = append(registers, acsRegisters(p))
	}
	fix := ""
	if len(ports) > 0 {
		text += fmt.Sprintf("; port %s does not redirect requests", listOf(words(addresses(ports))))
		fix = partBy(n, ports)
	}
	return fail(text, membersOf(n)(g)...).seen(registers...).fix(fix).object(fmt.Sprintf("IOMMU group %d", g.Number)).reaching(endpointsOf(n, g)...)
}

// joining returns the ports above a group's functions that don't redirect requests.
func joining(n *facts.Node, g *device.Group) []*device.Function {
	var found []*device.Function
	for _, f := range functionsAt(n, endpointsOf(n, g)) {
		for _, p := range upstream(n, f) {
			if !slices.Contains(found, p) && redirectsNothing(n, p) {
				found = append(found, p)
			}
		}
	}
	return found
}

// partBy says what would part the group. Registers count only while the kernel makes
// groups, which it does at boot.
func partBy(n *facts.Node, ports []*device.Function) string {
	var fixes []string
	for _, p := range ports {
		if isolation.ACSOf(n.Snapshot, p) == isolation.ACSOff {
			fixes = append(fixes, fmt.Sprintf("port %s: %s", p.Address, isolation.ACSAtBoot(p)))
		}
	}
	if len(fixes) == 0 {
		return "move the devices to slots whose ports have ACS; a switch without ACS can't separate them"
	}
	return "enable ACS on the ports: " + strings.Join(fixes, "; ") + "; then reboot: the kernel forms groups at boot"
}

package check

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// sharedDomainChecks are about kernel arguments that decide about ACS, and about where functions of several tenants meet.
func sharedDomainChecks() []Check {
	return []Check{
		// The override works by this argument alone: a kernel that has the patch, as
		// several distributions' have, is a stock one without it.
		{Rule: finding.Rule{
			ID: "ACS-006", Title: "Ensure that the kernel does not pretend that ACS is present", Severity: rule.Critical, Cheap: true,
			Why:     "pcie_acs_override, a patch that Linux never merged, makes groups that the hardware does not isolate.",
			Fix:     "remove pcie_acs_override from the boot loader's configuration and reboot; give functions that share a group to one tenant",
			Verify:  "grep -o 'pcie_acs_override[^ ]*' /proc/cmdline",
			Sources: []string{"Linux: Documentation/admin-guide/kernel-parameters.txt (which has no such parameter)"},
		}, Judge: func(n *facts.Node) Answer {
			return badArgument(n, "pcie_acs_override", func(string) string { return "fakes isolation that the hardware lacks" })
		}},
		{Rule: finding.Rule{
			ID: "ACS-007", Title: "Ensure that no kernel argument disables ACS", Severity: rule.High, Cheap: true,
			Why:     "`pci=disable_acs_redir=` and `pci=config_acs=` can remove the isolation between devices.",
			Fix:     "remove the option from the boot loader's configuration, or limit it to ports without assignable functions, and reboot",
			Verify:  "grep -o ' pci=[^ ]*' /proc/cmdline",
			Sources: []string{"Linux: Documentation/admin-guide/kernel-parameters.txt (pci=)", "Linux: drivers/pci/pci.c (__pci_config_acs)"},
		}, Judge: noArgumentAgainstACS},
		{Rule: finding.Rule{
			ID: "ACS-003", Title: "Ensure that translated requests can't go from one device to another", Severity: rule.Critical, Cheap: true,
			Why:     "A port with Direct Translated P2P forwards translated requests of a device with ATS past the IOMMU.",
			Fix:     "disable DirectTrans in the port's ACS control, or ATS in the device (`pci=noats`)",
			Verify:  "lspci -vvv | grep -E '^[0-9a-f]|ACSCtl|ATSCtl'",
			Sources: []string{"Linux: include/uapi/linux/pci_regs.h (PCI_ACS_DT, PCI_ATS_CTRL)", "PCI Express Base 6.12, 10"},
		}, Judge: translatedRequests},
		{Rule: finding.Rule{
			ID: "ACS-009", Title: "Ensure that requests between tenants' functions pass the IOMMU in both directions", Severity: rule.Critical, Cheap: true,
			Why:     "Where paths meet below the IOMMU, one tenant can read and write the other's device memory.",
			Fix:     "delete one tenant's pod; then enable ACS on the named ports, or give all devices below that point to one tenant",
			Verify:  "lspci -tv; lspci -vvv | grep -E '^[0-9a-f]|ACSC'",
			Sources: []string{"Linux: drivers/pci/pci.c (pci_acs_path_enabled)", "PCI Express Base 6.12"},
		}, Judge: tenantsMeet},
		// Only placement changes it, so it is not a failure.
		{Rule: finding.Rule{
			ID: "ACS-019", Title: "Ensure that tenants don't share a PCIe switch", Severity: rule.Info, Cheap: true, Static: true,
			Why:    "Tenants below one switch slow each other down and can observe each other's load. ACS can't prevent that.",
			Fix:    "if that matters, give all devices below a switch to one tenant (the attribute pcieSwitch in a claim's constraint)",
			Verify: "lspci -tv",
			Sources: []string{
				"Richter et al.: Performance Isolation Exposure in Virtualized Platforms with PCI Passthrough (ARCS 2014)",
				"Side, Yao, Zhang: LockedDown (EuroS&P 2022)",
			},
		}, Judge: sharedSwitches},
	}
}

// noArgumentAgainstACS looks at the ports above assignable functions, and at these functions: an argument about others
// takes nothing from a tenant's isolation.
func noArgumentAgainstACS(n *facts.Node) Answer {
	concerned := map[pci.Address]bool{}
	found := badArgument(n, "pci", func(value string) string {
		var texts []string
		for _, c := range isolation.ACSChanges(value) {
			reached := concernedBy(n, &c)
			for _, a := range reached {
				concerned[a] = true
			}
			if len(reached) > 0 {
				texts = append(texts, c.Text())
			}
		}
		return strings.Join(texts, " and ")
	})
	if found[0].State != finding.Fail {
		return found
	}
	return found.reaching(slices.SortedFunc(maps.Keys(concerned), pci.Address.Compare)...)
}

// concernedBy returns the assignable functions that a change of ACS names, or a port above which it names.
func concernedBy(n *facts.Node, c *isolation.ACSChange) []pci.Address {
	var all []pci.Address
	for _, f := range assignable(n) {
		way := append(upstream(n, f), f)
		if slices.ContainsFunc(way, func(p *device.Function) bool { return c.Concerns(n.Snapshot, p) }) {
			all = append(all, f.Address)
		}
	}
	return all
}

func tenantsMeet(n *facts.Node) Answer {
	held := holdings(n)
	var functions []*device.Function
	for _, h := range held {
		functions = append(functions, h.Function)
	}
	tenants := n.TenantsOf(addresses(functions)...)
	if len(tenants) < 2 {
		return notApplicable("fewer than two tenants have functions")
	}
	found := over(isolation.SharedDomains(held, bypassesOf(n, held, isolation.Bypasses)), func(m isolation.SharedDomain) Answer { return sharedDomain(n, &m) })
	return showing(found.or(pass(fmt.Sprintf("%s of %s", count(len(held), "function"), count(len(tenants), "tenant")))), functions, way(n))
}

// sharedDomain judges one place: a failure where a port is seen to let requests
// through, unknown where the registers of all in question are not readable.
func sharedDomain(n *facts.Node, m *isolation.SharedDomain) Answer {
	text := fmt.Sprintf("paths of %s meet at %s: ", strings.Join(m.Tenants, ", "), m.Domain)
	leaks := slices.DeleteFunc(slices.Clone(m.Bypasses), func(l isolation.Bypass) bool { return l.State == isolation.ACSUnknown })
	state := finding.Fail
	if len(leaks) == 0 {
		state, leaks = finding.Unknown, m.Bypasses
		text += "can't tell whether requests pass the IOMMU: unreadable registers of " + inWords(leaks, func(l isolation.Bypass) string { return l.At.String() })
	} else {
		text += fmt.Sprintf("%s, so requests bypass the IOMMU %s", inWords(leaks, portState), ways(n, m, leaks))
	}
	found := say(state, text, portRegisters(n, leaks)).object(m.Domain.String()).reaching(m.Devices...)
	if len(leaks) == 1 || len(m.Devices) == 2 {
		return found.at(leaks[0].From)
	}
	return found
}

// portState says what is wrong: "0000:22:00.0 has no ACS".
func portState(l isolation.Bypass) string {
	if l.State == isolation.ACSAbsent {
		return l.At.String() + " has no ACS"
	}
	return l.At.String() + " does not redirect"
}

// ways says between whom requests pass.
func ways(n *facts.Node, m *isolation.SharedDomain, leaks []isolation.Bypass) string {
	var senders []pci.Address
	for _, l := range leaks {
		senders = append(senders, l.From)
	}
	from := n.TenantsOf(senders...)
	if len(from) > 1 {
		return "in both directions"
	}
	others := slices.DeleteFunc(slices.Clone(m.Tenants), func(t string) bool { return slices.Contains(from, t) })
	if len(others) == 0 {
		return "between them"
	}
	return fmt.Sprintf("from %s to %s only", strings.Join(from, ", "), strings.Join(others, ", "))
}

// maxNamed is how many ports a sentence names.
const maxNamed = 4

// distinctPorts returns the ports of leaks, each once.
func distinctPorts(leaks []isolation.Bypass) []isolation.Bypass {
	seen := map[pci.Address]bool{}
	return slices.DeleteFunc(slices.Clone(leaks), func(l isolation.Bypass) bool {
		was := seen[l.At]
		seen[l.At] = true
		return was
	})
}

func inWords(leaks []isolation.Bypass, word func(isolation.Bypass) string) string {
	var words []string
	all := distinctPorts(leaks)
	for _, l := range all[:min(len(all), maxNamed)] {
		words = append(words, word(l))
	}
	if more := len(all) - maxNamed; more > 0 {
		words = append(words, fmt.Sprintf("%d more", more))
	}
	return strings.Join(words, ", ")
}

// portRegisters returns the ACS registers of the ports as evidence.
func portRegisters(n *facts.Node, leaks []isolation.Bypass) []facts.Fact {
	var seen []facts.Fact
	for _, l := range distinctPorts(leaks) {
		if p, ok := n.Snapshot.Function(l.At); ok {
			seen = append(seen, acsRegisters(p))
		}
	}
	return seen
}

// sharedSwitches reports each switch above functions of several tenants.
func sharedSwitches(n *facts.Node) Answer {
	below := map[pci.Address][]pci.Address{}
	var switches []pci.Address
	held := holdings(n)
	for _, h := range held {
		for _, p := range upstream(n, h.Function) {
			if p.Capabilities.Express != nil && p.Capabilities.Express.Type == pci.UpstreamPort {
				if below[p.Address] == nil {
					switches = append(switches, p.Address)
				}
				below[p.Address] = append(below[p.Address], h.Function.Address)
			}
		}
	}
	found := over(switches, func(s pci.Address) Answer {
		tenants := n.TenantsOf(below[s]...)
		if len(tenants) < 2 {
			return nil
		}
		return say(finding.Manual, fmt.Sprintf("%s share switch %s: decide whether they may share its bandwidth", strings.Join(tenants, ", "), s), nil).
			reaching(below[s]...).object("switch " + s.String())
	})
	return showing(found.or(pass("each switch has one tenant at most", n.Journal())), held, func(h isolation.Assigned) []facts.Fact { return above(n, h.Function) })
}

// nodeACSChecks are about ways between devices that the node itself opens, and about what a hostile device does to it.
func nodeACSChecks() []Check {
	return []Check{
		{Rule: finding.Rule{
			ID: "ACS-011", Title: "Ensure that the node publishes no device memory for peer-to-peer DMA", Severity: rule.Medium,
			Why:     "Other devices can reach published memory directly.",
			Fix:     "disable peer-to-peer memory in the device's driver, or unbind the device",
			Verify:  "grep -H . /sys/bus/pci/devices/*/p2pmem/published",
			Sources: []string{"Linux: Documentation/ABI/testing/sysfs-bus-pci (p2pmem)", "Linux: drivers/pci/p2pdma.c"},
		}, Judge: noPeerMemory},
		{Rule: finding.Rule{
			ID: "ACS-012", Title: "Ensure that no device was plugged in after the boot", Severity: rule.Medium,
			Why:     "A device that is plugged into a running node can do DMA.",
			Fix:     "find out who plugged it in; remove it, or reboot so that it counts as known",
			Verify:  "cat /run/kata-vfio/acs.json; grep -H . /sys/bus/pci/devices/*/removable",
			Sources: []string{"Linux: Documentation/ABI/testing/sysfs-devices-removable"},
		}, Judge: nothingPluggedIn},
		{Rule: finding.Rule{
			ID: "ACS-013", Title: "Ensure that DMA through Thunderbolt ports is confined", Severity: rule.High,
			Why:     "An unconfined device on a cable reaches the node's memory.",
			Fix:     "enable kernel DMA protection, or disable Thunderbolt, in the firmware setup",
			Verify:  "grep -H . /sys/bus/thunderbolt/devices/domain*/iommu_dma_protection",
			Sources: []string{"Linux: Documentation/ABI/testing/sysfs-bus-thunderbolt", "Linux: Documentation/admin-guide/thunderbolt.rst"},
		}, Judge: thunderboltConfined},
		{Rule: finding.Rule{
			ID: "ACS-015", Title: "Ensure that tenants' functions caused no fatal errors", Severity: rule.Medium,
			Why:     "A guest that tries to crash the host causes fatal errors.",
			Fix:     "take the device out of use, and find in the kernel log when they occurred",
			Verify:  "grep -H TOTAL /sys/bus/pci/devices/*/aer_dev_fatal",
			Sources: []string{"Linux: Documentation/ABI/testing/sysfs-bus-pci-devices-aer_stats"},
		}, Judge: noFatalErrors},
		{Rule: finding.Rule{
			ID: "ACS-016", Title: "Ensure that device errors don't make the node panic", Severity: rule.Medium,
			Why:     "A device that raises SERR or an unknown NMI would stop the node and all its tenants.",
			Fix:     "set the sysctl to 0 in /etc/sysctl.d, unless you want a crash on such errors",
			Verify:  "sysctl kernel.panic_on_io_nmi kernel.unknown_nmi_panic kernel.panic_on_unrecovered_nmi",
			Sources: []string{"Linux: Documentation/admin-guide/sysctl/kernel.rst", "CVE-2013-3495"},
		}, Judge: noPanicOnNMI},
		{Rule: finding.Rule{
			ID: "ACS-018", Title: "Ensure that functions without a tenant have bus mastering off", Severity: rule.Medium,
			Why:     "An idle function that masters the bus may still run what its last tenant left.",
			Fix:     "reset the function, or unbind and bind it again; find what enabled bus mastering",
			Verify:  "lspci -vv | grep -E '^[0-9a-f]|Control:.*BusMaster'",
			Sources: []string{"Linux: drivers/vfio/pci/vfio_pci_core.c (vfio_pci_core_disable, pci_clear_master)"},
		}, Judge: idleMastersNothing},
		{Rule: finding.Rule{
			ID: "ACS-017", Title: "Ensure that ACS control is the same as after the boot", Severity: rule.High, Cheap: true,
			Why:     "The kernel forms IOMMU groups at boot. If a script clears ACS later, the groups no longer match the hardware.",
			Fix:     "restore the old value, and find the script (GPUDirect recipes do this)",
			Verify:  "cat /run/kata-vfio/acs.json; lspci -vvv | grep -E '^[0-9a-f]|ACSCtl'",
			Sources: []string{"Linux: drivers/pci/pci.c (pci_enable_acs, which runs when a device is found)"},
		}, Judge: acsDrift},
	}
}

// noPeerMemory asks drivers of the node; VFs and what VFIO has publish nothing.
func noPeerMemory(n *facts.Node) Answer {
	var able []facts.Fact
	own := functionsWhere(n, func(f *device.Function) bool {
		return f.Driver != "" && f.VF == nil && !f.IsBridge() && !onVFIODriver(f)
	})
	found := over(own, func(f *device.Function) Answer {
		memory := n.Read(path.Join("sys/bus/pci/devices", f.Address.String(), "p2pmem/published"))
		if memory.Status == facts.Absent {
			return nil
		}
		able = append(able, memory)
		switch {
		case !memory.OK():
			return unknown("whether "+f.Address.String()+" publishes its memory", memory).on(f)
		case memory.On():
			return fail(fmt.Sprintf("%s (driver %s) publishes memory to other devices", f.Address, f.Driver), memory).on(f)
		}
		return nil
	})
	if len(able) == 0 {
		return pass("no driver has peer-to-peer memory", nowhere("/sys/bus/pci/devices/*/p2pmem"))
	}
	return showing(found.or(pass(count(len(able), "device")+" with such memory, none published")), able, one(itself))
}

// nothingPluggedIn compares with the functions of the boot. VFs come by the
// plugin's or an operator's will, and ports with what is below them.
func nothingPluggedIn(n *facts.Node) Answer {
	baseline, kept := n.Baseline()
	if baseline == nil {
		return noBaseline(n, kept)
	}
	slots := functionsWhere(n, func(f *device.Function) bool { return f.Capabilities.Express != nil && f.Capabilities.Express.HotPlug })
	found := over(functionsWhere(n, anyFunction), func(f *device.Function) Answer {
		if _, known := baseline.Functions[f.Address]; known || f.VF != nil || f.IsBridge() {
			return nil
		}
		return fail(fmt.Sprintf("%s (%s) was added after the boot", f.Address, f.Class), attribute(f.Address, "class", f.Class.String()), kept).on(f)
	})
	return found.or(pass(fmt.Sprintf("%s since the boot; %s for hot plug", count(len(baseline.Functions), "function"), count(len(slots), "slot")), kept))
}

func thunderboltConfined(n *facts.Node) Answer {
	const bus = "sys/bus/thunderbolt/devices"
	names, list := n.List(bus)
	if !list.Known() {
		return unknown("whether there is Thunderbolt", list)
	}
	domains := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !strings.HasPrefix(name, "domain") })
	found := over(domains, func(name string) Answer {
		switch protection := n.Read(path.Join(bus, name, "iommu_dma_protection")); {
		case !protection.OK():
			return unknown("whether DMA through "+name+" is confined", protection).object(name)
		case !protection.On():
			return fail("DMA of devices at "+name+" is not confined", protection).object(name)
		}
		return nil
	})
	if len(domains) == 0 {
		return pass("the node has no Thunderbolt", list)
	}
	return found.or(pass(count(len(domains), "domain"), list))
}

// noFatalErrors looks at what tenants have now: the counters don't say when.
func noFatalErrors(n *facts.Node) Answer {
	var counted []facts.Fact
	found := over(holdings(n), func(h isolation.Assigned) Answer {
		f := h.Function
		if !f.Capabilities.AER {
			return nil
		}
		total, errors := n.FatalErrors(f)
		if errors.Status == facts.Absent { // the firmware handles them
			return nil
		}
		counted = append(counted, errors)
		switch {
		case !errors.OK():
			return unknown("the errors of "+f.Address.String(), errors).on(f)
		case total > 0:
			return fail(fmt.Sprintf("%s had %s since its discovery", f.Address, count(int(min(total, 1<<31)), "fatal error")), errors).on(f)
		}
		return nil
	})
	return conclude(found, counted, "function", "the kernel counts no errors of assigned functions", one(itself))
}

func noPanicOnNMI(n *facts.Node) Answer {
	var seen []facts.Fact
	found := over([]string{"panic_on_io_nmi", "unknown_nmi_panic", "panic_on_unrecovered_nmi"}, func(name string) Answer {
		switch setting := n.Read("proc/sys/kernel/" + name); {
		case setting.Status == facts.Absent: // of x86 alone
		case !setting.OK():
			return unknown("kernel."+name, setting)
		case setting.Value != "0":
			return fail(fmt.Sprintf("kernel.%s is %s", name, setting.Value), setting)
		default:
			seen = append(seen, setting)
		}
		return nil
	})
	if len(seen) == 0 {
		return found.or(notApplicable("the architecture lacks these settings"))
	}
	return found.or(pass("errors don't cause a panic", seen...))
}

const commandMaster = 0x0004 // PCI_COMMAND_MASTER

// idleMastersNothing checks the functions that are on VFIO without a claim.
func idleMastersNothing(n *facts.Node) Answer {
	idle := functionsWhere(n, func(f *device.Function) bool {
		return onVFIODriver(f) && !f.IsBridge() && len(n.TenanciesOf(f.Address)) == 0
	})
	found := over(idle, func(f *device.Function) Answer {
		switch command, seen := n.Command(f); {
		case !seen.OK():
			return unknown("whether "+f.Address.String()+" masters the bus", seen).on(f)
		case command&commandMaster != 0:
			return fail(f.Address.String()+" has bus mastering on without a tenant", seen).reaching(f.Address).on(f)
		}
		return nil
	})
	return conclude(found, idle, "function", "every VFIO function has a tenant", one(func(f *device.Function) facts.Fact {
		_, seen := n.Command(f)
		return seen
	}))
}

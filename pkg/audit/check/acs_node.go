package check

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// sharedDomainChecks returns the checks of where functions of several tenants meet.
func sharedDomainChecks() []Check {
	return []Check{
		{Rule: finding.Rule{
			ID: "ACS-003", Title: "Ensure that translated requests can't go from one device to another", Severity: isolation.Critical, Cheap: true,
			Why:     "A port with Direct Translated P2P forwards translated requests of a device with ATS past the IOMMU.",
			Fix:     "disable DirectTrans in the port's ACS control, or ATS in the device (`pci=noats`)",
			Verify:  "lspci -vvv | grep -E '^[0-9a-f]|ACSCtl|ATSCtl'",
			Sources: []string{"Linux: include/uapi/linux/pci_regs.h (PCI_ACS_DT, PCI_ATS_CTRL)", "PCI Express Base 6.12, 10"},
		}, Judge: translatedRequests},
		{Rule: finding.Rule{
			ID: "ACS-009", Title: "Ensure that requests between tenants' functions pass the IOMMU in both directions", Severity: isolation.Critical, Cheap: true,
			Why:     "Where paths meet below the IOMMU, one tenant can read and write the other's device memory.",
			Fix:     "delete one tenant's pod; then enable ACS on the named ports, or give all devices below that point to one tenant",
			Verify:  "lspci -tv; lspci -vvv | grep -E '^[0-9a-f]|ACSC'",
			Sources: []string{"Linux: drivers/pci/pci.c (pci_acs_path_enabled)", "PCI Express Base 6.12"},
		}, Judge: tenantsMeet},
		// Only placement changes it, so it is not a failure.
		{Rule: finding.Rule{
			ID: "ACS-019", Title: "Ensure that tenants don't share a PCIe switch", Severity: isolation.Info, Cheap: true, Static: true,
			Why:    "Tenants below one switch slow each other down and can observe each other's load. ACS can't prevent that.",
			Fix:    "if that matters, give all devices below a switch to one tenant (the attribute pcieSwitch in a claim's constraint)",
			Verify: "lspci -tv",
			Sources: []string{
				"Richter et al., Performance Isolation Exposure in Virtualized Platforms with PCI Passthrough I/O Sharing (ARCS 2014)",
				"Side, Yao, Zhang, LockedDown: Exploiting Contention on Host-GPU PCIe Bus for Fun and Profit",
			},
		}, Judge: sharedSwitches},
	}
}

// holdings returns the functions that tenants have.
func holdings(n *facts.Node) []isolation.Assigned {
	var held []isolation.Assigned
	for i := range n.Snapshot.Functions {
		f := &n.Snapshot.Functions[i]
		if tenants := n.TenantsOf(f.Address); len(tenants) > 0 {
			held = append(held, isolation.Assigned{Function: f, Tenants: tenants})
		}
	}
	return held
}

func bypassesOf(n *facts.Node, held []isolation.Assigned, of func(*device.Snapshot, *device.Function) []isolation.Bypass) []isolation.Bypass {
	var leaks []isolation.Bypass
	for _, h := range held {
		leaks = append(leaks, of(n.Snapshot, h.Function)...)
	}
	return leaks
}

func tenantsMeet(n *facts.Node) Answer {
	held := holdings(n)
	tenants := map[string]bool{}
	for _, h := range held {
		for _, t := range h.Tenants {
			tenants[t] = true
		}
	}
	if len(tenants) < 2 {
		return notApplicable("fewer than two tenants have functions")
	}
	var found Answer
	for _, m := range isolation.SharedDomains(held, bypassesOf(n, held, isolation.Bypasses)) {
		found = append(found, sharedDomain(n, &m))
	}
	if len(found) == 0 {
		said := pass(fmt.Sprintf("%s of %s", count(len(held), "function"), count(len(tenants), "tenant")))
		return showing(said, held, func(h isolation.Assigned) []facts.Fact { return way(n)(h.Function) })
	}
	return found
}

// sharedDomain judges one place: a failure where a port is seen to let requests
// through, unknown where the registers of all in question are not readable.
func sharedDomain(n *facts.Node, m *isolation.SharedDomain) finding.Finding {
	open := slices.DeleteFunc(slices.Clone(m.Bypasses), func(l isolation.Bypass) bool { return l.State == isolation.ACSUnknown })
	state, leaks := finding.Fail, open
	if len(open) == 0 {
		state, leaks = finding.Unknown, m.Bypasses
	}
	text := fmt.Sprintf("paths of %s meet at %s: ", strings.Join(m.Tenants, ", "), m.Domain)
	if state == finding.Unknown {
		text += "can't tell whether requests pass the IOMMU: unreadable registers of " + portNames(leaks)
	} else {
		text += fmt.Sprintf("%s, so requests bypass the IOMMU %s", portStates(leaks), ways(n, m, leaks))
	}
	found := say(state, text, portRegisters(n, leaks))[0]
	found.Object, found.Devices = m.Domain.String(), m.Devices
	if len(leaks) == 1 || len(m.Devices) == 2 {
		found.Device = new(leaks[0].From)
	}
	return found
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

func portNames(leaks []isolation.Bypass) string {
	return inWords(leaks, func(l isolation.Bypass) string { return l.At.String() })
}

// portStates says what is wrong: "0000:22:00.0 has ACS off".
func portStates(leaks []isolation.Bypass) string {
	return inWords(leaks, func(l isolation.Bypass) string {
		if l.State == isolation.ACSAbsent {
			return l.At.String() + " has no ACS"
		}
		return l.At.String() + " does not redirect"
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

// translatedRequests fails for each function that can send translated requests past the IOMMU. It is more severe if they
// reach another tenant's function.
func translatedRequests(n *facts.Node) Answer {
	held := holdings(n)
	crossing := map[isolation.Domain]isolation.SharedDomain{}
	for _, m := range isolation.SharedDomains(held, bypassesOf(n, held, isolation.TranslatedBypasses)) {
		crossing[m.Domain] = m
	}
	functions := assignable(n)
	var found Answer
	for _, f := range functions {
		for _, l := range isolation.TranslatedBypasses(n.Snapshot, f) {
			p, _ := n.Snapshot.Function(l.At)
			m, crosses := crossing[l.Domain]
			failed := fail(fmt.Sprintf("%s has ATS on and port %s DirectTrans: its translated requests reach devices at %s past the IOMMU", f.Address, l.At, l.Domain),
				append(switched(f, "ATS"), acsRegisters(p))...).
				fix(fmt.Sprintf("run `%s`, or boot with `pci=noats`", isolation.SetACS(l.At, p.Capabilities.ACS.Control&^pci.ACSDirectTranslated))).
				reaching(m.Devices...).weighs(isolation.Medium)
			if crosses {
				failed.weighs(isolation.Critical)
			}
			found = append(found, failed.on(f)...)
		}
	}
	return showing(orPass(append(found, unreadable(functions)...), len(functions)), functions, func(f *device.Function) []facts.Fact {
		return append(switched(f, "ATS"), way(n)(f)[1:]...)
	})
}

// unreadable names the functions whose extended capabilities could not be read.
func unreadable(functions []*device.Function) Answer {
	hidden := slices.DeleteFunc(slices.Clone(functions), func(f *device.Function) bool { return !f.Capabilities.Truncated })
	if len(hidden) == 0 {
		return nil
	}
	return unknown("the extended capabilities of "+count(len(hidden), "function"), notReadable(hidden[0])).reaching(addresses(hidden)...)
}

// sharedSwitches reports each switch above functions of several tenants.
func sharedSwitches(n *facts.Node) Answer {
	below := map[pci.Address][]pci.Address{}
	var switches []pci.Address
	held := holdings(n)
	for _, h := range held {
		for _, bridge := range h.Function.Upstream {
			if p, ok := n.Snapshot.Function(bridge); ok && p.Capabilities.Express != nil && p.Capabilities.Express.Type == pci.UpstreamPort {
				if below[bridge] == nil {
					switches = append(switches, bridge)
				}
				below[bridge] = append(below[bridge], h.Function.Address)
			}
		}
	}
	var found Answer
	for _, s := range switches {
		tenants := n.TenantsOf(below[s]...)
		if len(tenants) < 2 {
			continue
		}
		found = append(found, say(finding.Manual, fmt.Sprintf("%s share switch %s: decide whether they may share its bandwidth", strings.Join(tenants, ", "), s), nil).
			reaching(below[s]...).object("switch "+s.String())...)
	}
	if len(found) == 0 {
		said := pass("each switch has one tenant at most", n.Journal())
		return showing(said, held, func(h isolation.Assigned) []facts.Fact { return above(n, h.Function) })
	}
	return found
}

// nodeACSChecks returns the checks of ways between devices that the node itself
// opens, and of what a hostile device does to it.
func nodeACSChecks() []Check {
	return []Check{
		{Rule: finding.Rule{
			ID: "ACS-011", Title: "Ensure that the node publishes no device memory for peer-to-peer DMA", Severity: isolation.Medium,
			Why:     "Other devices can reach published memory directly.",
			Fix:     "disable peer-to-peer memory in the device's driver, or unbind the device",
			Verify:  "grep -H . /sys/bus/pci/devices/*/p2pmem/published",
			Sources: []string{"Linux: Documentation/ABI/testing/sysfs-bus-pci (p2pmem)", "Linux: drivers/pci/p2pdma.c"},
		}, Judge: noPeerMemory},
		{Rule: finding.Rule{
			ID: "ACS-012", Title: "Ensure that no device was plugged in after the boot", Severity: isolation.Medium,
			Why:     "A device that is plugged into a running node can do DMA.",
			Fix:     "find out who plugged it in; remove it, or reboot so that it counts as known",
			Verify:  "cat /run/kata-vfio/acs.json; grep -H . /sys/bus/pci/devices/*/removable",
			Sources: []string{"Linux: Documentation/ABI/testing/sysfs-devices-removable"},
		}, Judge: nothingPluggedIn},
		{Rule: finding.Rule{
			ID: "ACS-013", Title: "Ensure that DMA through Thunderbolt ports is confined", Severity: isolation.High,
			Why:     "An unconfined device on a cable reaches the node's memory.",
			Fix:     "enable kernel DMA protection, or disable Thunderbolt, in the firmware setup",
			Verify:  "grep -H . /sys/bus/thunderbolt/devices/domain*/iommu_dma_protection",
			Sources: []string{"Linux: Documentation/ABI/testing/sysfs-bus-thunderbolt", "Linux: Documentation/admin-guide/thunderbolt.rst"},
		}, Judge: thunderboltConfined},
		{Rule: finding.Rule{
			ID: "ACS-015", Title: "Ensure that tenants' functions caused no fatal errors", Severity: isolation.Medium,
			Why:     "A guest that tries to crash the host causes fatal errors.",
			Fix:     "take the device out of use, and find in the kernel log when they occurred",
			Verify:  "grep -H TOTAL /sys/bus/pci/devices/*/aer_dev_fatal",
			Sources: []string{"Linux: Documentation/ABI/testing/sysfs-bus-pci-devices-aer_stats"},
		}, Judge: noFatalErrors},
		{Rule: finding.Rule{
			ID: "ACS-016", Title: "Ensure that device errors don't make the node panic", Severity: isolation.Medium,
			Why:     "A device that raises SERR or an unknown NMI would stop the node and all its tenants.",
			Fix:     "set the sysctl to 0 in /etc/sysctl.d, unless you want a crash on such errors",
			Verify:  "sysctl kernel.panic_on_io_nmi kernel.unknown_nmi_panic kernel.panic_on_unrecovered_nmi",
			Sources: []string{"Linux: Documentation/admin-guide/sysctl/kernel.rst", "CVE-2013-3495"},
		}, Judge: noPanicOnNMI},
		{Rule: finding.Rule{
			ID: "ACS-018", Title: "Ensure that functions without a tenant have bus mastering off", Severity: isolation.Medium,
			Why:     "An idle function that masters the bus may still run what its last tenant left.",
			Fix:     "reset the function, or unbind and bind it again; find what enabled bus mastering",
			Verify:  "lspci -vv | grep -E '^[0-9a-f]|Control:.*BusMaster'",
			Sources: []string{"Linux: drivers/vfio/pci/vfio_pci_core.c (vfio_pci_core_disable, pci_clear_master)"},
		}, Judge: idleMastersNothing},
	}
}

// noPeerMemory asks drivers of the node; VFs and what VFIO has publish nothing.
func noPeerMemory(n *facts.Node) Answer {
	var found Answer
	var able []facts.Fact
	for i := range n.Snapshot.Functions {
		f := &n.Snapshot.Functions[i]
		if f.Driver == "" || f.VF != nil || f.IsBridge() || device.IsVFIO(f.Driver) {
			continue
		}
		memory := n.Read(path.Join("sys/bus/pci/devices", f.Address.String(), "p2pmem/published"))
		switch {
		case memory.Status == facts.Absent:
			continue
		case !memory.OK():
			found = append(found, unknown("whether "+f.Address.String()+" publishes its memory", memory).on(f)...)
		case memory.On():
			found = append(found, fail(fmt.Sprintf("%s (driver %s) publishes memory to other devices", f.Address, f.Driver), memory).on(f)...)
		}
		able = append(able, memory)
	}
	switch {
	case len(found) > 0:
		return found
	case len(able) == 0:
		return pass("no driver has peer-to-peer memory", nowhere("/sys/bus/pci/devices/*/p2pmem"))
	}
	return showing(pass(count(len(able), "device")+" with such memory, none published"), able, one(itself))
}

// nothingPluggedIn compares with the functions of the boot. VFs come by the
// plugin's or an operator's will, and ports with what is below them.
func nothingPluggedIn(n *facts.Node) Answer {
	baseline, kept := n.Baseline()
	if baseline == nil {
		return noBaseline(n, kept)
	}
	var found Answer
	slots := 0
	for i := range n.Snapshot.Functions {
		f := &n.Snapshot.Functions[i]
		if e := f.Capabilities.Express; e != nil && e.HotPlug {
			slots++
		}
		if _, known := baseline.Functions[f.Address]; !known && f.VF == nil && !f.IsBridge() {
			found = append(found, fail(fmt.Sprintf("%s (%s) was added after the boot", f.Address, f.Class), attribute(f.Address, "class", f.Class.String()), kept).on(f)...)
		}
	}
	if len(found) == 0 {
		return pass(fmt.Sprintf("%s since the boot; %s for hot plug", count(len(baseline.Functions), "function"), count(slots, "slot")), kept)
	}
	return found
}

func thunderboltConfined(n *facts.Node) Answer {
	const bus = "sys/bus/thunderbolt/devices"
	names, list := n.List(bus)
	if !list.Known() {
		return unknown("whether there is Thunderbolt", list)
	}
	var found Answer
	domains := 0
	for _, name := range names {
		if !strings.HasPrefix(name, "domain") {
			continue
		}
		domains++
		protection := n.Read(path.Join(bus, name, "iommu_dma_protection"))
		switch {
		case !protection.OK():
			found = append(found, unknown("whether DMA through "+name+" is confined", protection).object(name)...)
		case !protection.On():
			found = append(found, fail("DMA of devices at "+name+" is not confined", protection).object(name)...)
		}
	}
	switch {
	case len(found) > 0:
		return found
	case domains == 0:
		return pass("the node has no Thunderbolt", list)
	}
	return pass(count(domains, "domain"), list)
}

// noFatalErrors looks at what tenants have now: the counters don't say when.
func noFatalErrors(n *facts.Node) Answer {
	var found Answer
	var counted []facts.Fact
	for _, h := range holdings(n) {
		if !h.Function.Capabilities.AER {
			continue
		}
		total, errors := n.FatalErrors(h.Function)
		switch {
		case errors.Status == facts.Absent: // the firmware handles them
			continue
		case !errors.OK():
			found = append(found, unknown("the errors of "+h.Function.Address.String(), errors).on(h.Function)...)
		case total > 0:
			found = append(found, fail(fmt.Sprintf("%s had %s since its discovery", h.Function.Address, count(int(min(total, 1<<31)), "fatal error")), errors).on(h.Function)...)
		}
		counted = append(counted, errors)
	}
	return conclude(found, counted, "function", "the kernel counts no errors of assigned functions", one(itself))
}

func noPanicOnNMI(n *facts.Node) Answer {
	var found Answer
	var seen []facts.Fact
	for _, name := range []string{"panic_on_io_nmi", "unknown_nmi_panic", "panic_on_unrecovered_nmi"} {
		switch setting := n.Read("proc/sys/kernel/" + name); {
		case setting.Status == facts.Absent: // of x86 alone
		case !setting.OK():
			found = append(found, unknown("kernel."+name, setting)...)
		case setting.Value != "0":
			found = append(found, fail(fmt.Sprintf("kernel.%s is %s", name, setting.Value), setting)...)
		default:
			seen = append(seen, setting)
		}
	}
	switch {
	case len(found) > 0:
		return found
	case len(seen) == 0:
		return notApplicable("the architecture lacks these settings")
	}
	return pass("errors don't cause a panic", seen...)
}

const commandMaster = 0x0004 // PCI_COMMAND_MASTER

// idleMastersNothing checks the functions that are on VFIO without a claim.
func idleMastersNothing(n *facts.Node) Answer {
	var found Answer
	var idle []facts.Fact
	for i := range n.Snapshot.Functions {
		f := &n.Snapshot.Functions[i]
		if !device.IsVFIO(f.Driver) || f.IsBridge() || len(n.TenanciesOf(f.Address)) > 0 {
			continue
		}
		command, seen := n.Command(f)
		idle = append(idle, seen)
		switch {
		case !seen.OK():
			found = append(found, unknown("whether "+f.Address.String()+" masters the bus", seen).on(f)...)
		case command&commandMaster != 0:
			found = append(found, fail(f.Address.String()+" has bus mastering on without a tenant", seen).reaching(f.Address).on(f)...)
		}
	}
	return conclude(found, idle, "function", "every VFIO function has a tenant", one(itself))
}

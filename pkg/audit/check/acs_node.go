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
)

// sharedDomainChecks are about kernel arguments that decide about ACS, and about where functions of several tenants meet.
func sharedDomainChecks() []Check {
	return []Check{
		ofSettings("ACS-006"),
		{ID: "ACS-007", Judge: noArgumentAgainstACS},
		{ID: "ACS-003", Judge: translatedRequests},
		{ID: "ACS-009", Judge: tenantsMeet},
		// Only placement changes it, so it is not a failure.
		{ID: "ACS-019", Judge: sharedSwitches},
		{ID: "ACS-020", Judge: exclusiveDomains},
	}
}

// noArgumentAgainstACS looks only at assignable functions and at the ports above them, because an argument about other functions
// does not weaken a tenant's isolation.
func noArgumentAgainstACS(n *facts.Node) Answer {
	concerned := map[pci.Address]bool{}
	found := argument{"pci", func(value string, _ []string) string {
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
	}}.judge(n)
	if found[0].State != finding.Fail {
		return found
	}
	return found.reaching(slices.SortedFunc(maps.Keys(concerned), pci.Address.Compare)...)
}

// concernedBy returns the assignable functions that a change of ACS affects: it names the function, or a port above it.
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
	// Owners, not namespaces: one tenant may have several, and their devices may meet.
	tenants := n.Owners(addresses(functions)...)
	if len(tenants) < 2 {
		return notApplicable("fewer than two tenants have functions")
	}
	found := over(isolation.SharedDomains(held, listBypasses(n, held, isolation.Bypasses)), func(m isolation.SharedDomain) Answer { return sharedDomain(n, &m) })
	return showing(found.or(pass(fmt.Sprintf("%s of %s", count(len(held), "function"), count(len(tenants), "tenant")))), functions, way(n))
}

// sharedDomain judges one shared domain. It fails if a port lets requests through, and is unknown if the registers of all
// these ports are unreadable.
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

// portState describes the fault of a port: "0000:22:00.0 has no ACS".
func portState(l isolation.Bypass) string {
	if l.State == isolation.ACSAbsent {
		return l.At.String() + " has no ACS"
	}
	return l.At.String() + " does not redirect"
}

// ways names the tenants between which requests can pass.
func ways(n *facts.Node, m *isolation.SharedDomain, leaks []isolation.Bypass) string {
	var senders []pci.Address
	for _, l := range leaks {
		senders = append(senders, l.From)
	}
	from := n.Owners(senders...)
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

// nodeACSChecks are about paths between devices that the node itself opens, and about attacks of a device on the node.
func nodeACSChecks() []Check {
	return []Check{
		{ID: "ACS-011", Judge: noPeerMemory},
		{ID: "ACS-012", Judge: nothingPluggedIn},
		{ID: "ACS-013", Judge: thunderboltConfined},
		{ID: "ACS-015", Judge: noFatalErrors},
		ofSettings("ACS-016"),
		{ID: "ACS-018", Judge: idleMastersNothing},
		{ID: "ACS-017", Judge: acsDrift},
	}
}

// noPeerMemory checks only functions on host drivers, because VFs and functions on VFIO publish no memory for peers.
func noPeerMemory(n *facts.Node) Answer {
	var able []facts.Fact
	own := functionsWhere(n, func(f *device.Function) bool {
		return f.Driver != "" && f.VF == nil && !f.IsBridge() && !onVFIODriver(f)
	})
	found := over(own, func(f *device.Function) Answer {
		memory := n.Read(path.Join("sys/bus/pci/devices", f.Address.String(), "p2pmem/published"))
		// A function gets the directory when its driver registers memory for peers (drivers/pci/p2pdma.c).
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

// nothingPluggedIn compares with the functions of the boot. VFs are created by the plugin or an operator, and ports
// appear with the functions below them, so neither counts.
func nothingPluggedIn(n *facts.Node) Answer {
	baseline, kept := n.Baseline()
	if baseline == nil {
		return noBaseline(n, kept)
	}
	slots := functionsWhere(n, func(f *device.Function) bool { return f.Capabilities.Express != nil && f.Capabilities.Express.HotPlug })
	found := over(functionsWhere(n, anyFunction), func(f *device.Function) Answer {
		how := pluggedIn(baseline.Compare(f.Address, n.Snapshot.Identify(f)))
		if how == "" || f.VF != nil || f.IsBridge() {
			return nil
		}
		return fail(fmt.Sprintf("%s (%s) %s", f.Address, f.Class, how), attribute(f.Address, "class", f.Class.String()), kept).on(f)
	})
	return found.or(pass(fmt.Sprintf("%s since the boot; %s for hot plug", count(len(baseline.Functions), "function"), count(len(slots), "slot")), kept))
}

// pluggedIn describes how a function may have been plugged in after the boot; "" for one that was there.
func pluggedIn(since facts.Since) string {
	switch since {
	case facts.Added:
		return "was added after the boot"
	case facts.Returned:
		return "left the bus after the boot, and was found again or replaced by a device of its model"
	case facts.Replaced:
		return "is another device than the one that had its address after the boot"
	case facts.Unchanged:
	}
	return ""
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
		// At 0, only Thunderbolt's security levels keep a device from the node's memory
		// (Documentation/ABI/testing/sysfs-bus-thunderbolt).
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

// noFatalErrors looks at the functions that tenants hold now, because the counters have no times.
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

const commandMaster = 0x0004 // PCI_COMMAND_MASTER

// idleMastersNothing checks the functions that are on VFIO without a claim.
func idleMastersNothing(n *facts.Node) Answer {
	idle := functionsWhere(n, func(f *device.Function) bool {
		return onVFIODriver(f) && !f.IsBridge() && len(n.TenanciesAt(f.Address)) == 0
	})
	found := over(idle, func(f *device.Function) Answer {
		switch command, seen := n.Command(f); {
		case !seen.OK():
			return unknown("whether "+f.Address.String()+" masters the bus", seen).on(f)
		// vfio-pci clears the bit when the last user closes the device (vfio_pci_core_disable), so an idle function
		// should not have it.
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

package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// groupChecks are about the members of a group, and about features by which the IOMMU trusts a device.
func groupChecks() []Check {
	return []Check{
		{ID: "IOM-016", Judge: func(n *facts.Node) Answer {
			return ofAssignable(n, because(n, rule.DirectMappedRegion, nil), groupFile(n, "reserved_regions"))
		}},
		{ID: "IOM-017", Judge: oneTenantPerGroup},
		{ID: "IOM-018", Judge: noHostDriverBeside},
		{ID: "IOM-026", Judge: noMergedGroup},
		{ID: "IOM-019", Judge: func(n *facts.Node) Answer {
			return switchedOff(n, "ATS").each(func(f *finding.Finding) {
				if about, ok := aboutFunction(n, f); ok {
					f.Remediation = advised(Answer{*f}, n.Judgment(about).Notes, rule.ATSEnabled)[0].Remediation
				}
			})
		}},
		{ID: "IOM-020", Judge: func(n *facts.Node) Answer { return switchedOff(n, "PRI", "PASID") }},
		{ID: "IOM-022", Judge: ofChosen(confidential, hasIommufd)},
	}
}

// groupsWhere returns the IOMMU groups of the node for which so is true.
func groupsWhere(n *facts.Node, so func(*device.Group) bool) []*device.Group {
	var found []*device.Group
	for i := range n.Snapshot.Groups {
		if g := &n.Snapshot.Groups[i]; so(g) {
			found = append(found, g)
		}
	}
	return found
}

// oneTenantPerGroup checks the groups of functions that tenants hold, each once.
func oneTenantPerGroup(n *facts.Node) Answer {
	held := groupsWhere(n, func(g *device.Group) bool { return len(ownersIn(n, g.Members)) > 0 })
	found := over(held, func(g *device.Group) Answer {
		tenants := n.Owners(g.Members...)
		if len(tenants) < 2 {
			return nil
		}
		text := fmt.Sprintf("%[2]s share IOMMU group %[1]d: %[3]s", g.Number, strings.Join(tenants, " and "), strings.Join(ownersIn(n, g.Members), ", "))
		return fail(text, memberFacts(n)(g)...).reaching(listEndpoints(n, g)...).object(fmt.Sprintf("IOMMU group %d", g.Number))
	})
	passed := pass(fmt.Sprintf("%s, each with one tenant", count(len(held), "group")), n.Journal())
	return concludeAs(found, held, passed, "no function is assigned", memberFacts(n))
}

// ownersIn names the owner of each function in words.
func ownersIn(n *facts.Node, members []pci.Address) []string {
	var owners []string
	for _, a := range members {
		for _, t := range n.TenanciesAt(a) {
			owners = append(owners, fmt.Sprintf("%s has %s (claim %s)", n.Owner(&t), a, t.Claim()))
		}
	}
	return owners
}

// memberFacts returns a reader of the kernel's list of a group's members.
func memberFacts(n *facts.Node) func(*device.Group) []facts.Fact {
	return one(func(g *device.Group) facts.Fact {
		_, list := n.List(fmt.Sprintf("sys/kernel/iommu_groups/%d/devices", g.Number))
		return list
	})
}

func listEndpoints(n *facts.Node, g *device.Group) []pci.Address {
	return addresses(slices.DeleteFunc(n.Snapshot.Members(g), (*device.Function).IsBridge))
}

// noHostDriverBeside checks the groups of functions that are on VFIO for tenants. While a function of a claim
// intentionally has its kernel driver, as a physical endpoint does, no function of its group is on VFIO.
func noHostDriverBeside(n *facts.Node) Answer {
	held := groupsWhere(n, func(g *device.Group) bool {
		return slices.ContainsFunc(n.Snapshot.Members(g), func(f *device.Function) bool { return onVFIODriver(f) && len(n.TenanciesAt(f.Address)) > 0 })
	})
	found := over(held, func(g *device.Group) Answer {
		return over(n.Snapshot.Members(g), func(f *device.Function) Answer {
			// VFIO accepts a group in which other functions have such drivers, because they do no DMA themselves.
			if isolation.LeavesDMA(f.Driver) {
				return nil
			}
			return fail(fmt.Sprintf("%s is on driver %s in IOMMU group %d of a tenant", f.Address, f.Driver, g.Number), attribute(f.Address, "driver", f.Driver)).
				reaching(listEndpoints(n, g)...).on(f)
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
	// VFIO makes a no-IOMMU group for one function, so it shows nothing about the hardware.
	groups := groupsWhere(n, func(g *device.Group) bool { return !g.NoIOMMU && slices.ContainsFunc(g.Members, n.IsAvailable) })
	found := over(groups, func(g *device.Group) Answer {
		devices := joinedIn(n, g)
		if len(devices) < 2 {
			return nil
		}
		return merged(n, g, devices)
	})
	return conclude(found, groups, "group", "no assignable function is in an IOMMU group", memberFacts(n))
}

// joinedIn names the devices of a group, each by its first function. Each VF counts as a device, because it
// is meant to be assigned alone.
func joinedIn(n *facts.Node, g *device.Group) []string {
	var names []string
	slots := map[pci.Address]bool{}
	for _, a := range listEndpoints(n, g) {
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

// merged names the devices that a group joins, the ports that cause it, and the fix.
func merged(n *facts.Node, g *device.Group, devices []string) Answer {
	text := fmt.Sprintf("IOMMU group %d joins %s: %s", g.Number, count(len(devices), "device"), joinNames(devices))
	ports := joining(n, g)
	var registers []facts.Fact
	for _, p := range ports {
		registers = append(registers, acsRegisters(p))
	}
	fix := ""
	if len(ports) > 0 {
		text += fmt.Sprintf("; port %s does not redirect requests", joinNames(words(addresses(ports))))
		fix = partBy(n, ports)
	}
	return fail(text, memberFacts(n)(g)...).seen(registers...).fix(fix).object(fmt.Sprintf("IOMMU group %d", g.Number)).reaching(listEndpoints(n, g)...)
}

// joining returns the ports above a group's functions that don't redirect requests.
func joining(n *facts.Node, g *device.Group) []*device.Function {
	var found []*device.Function
	for _, f := range functionsAt(n, listEndpoints(n, g)) {
		for _, p := range upstream(n, f) {
			if !slices.Contains(found, p) && redirectsNothing(n, p) {
				found = append(found, p)
			}
		}
	}
	return found
}

// partBy returns the fix that separates the group. ACS registers count only when the kernel makes groups,
// which it does at boot.
func partBy(n *facts.Node, ports []*device.Function) string {
	var fixes []string
	for _, p := range ports {
		if isolation.ReadACS(n.Snapshot, p) == isolation.ACSOff {
			fixes = append(fixes, fmt.Sprintf("port %s: %s", p.Address, isolation.ACSAtBoot(p)))
		}
	}
	if len(fixes) == 0 {
		return "move the devices to slots whose ports have ACS; a switch without ACS can't separate them"
	}
	return "enable ACS on the ports: " + strings.Join(fixes, "; ") + "; then reboot: the kernel forms groups at boot"
}

// switchedOff fails for each assignable function that has one of the capabilities on.
func switchedOff(n *facts.Node, names ...string) Answer {
	words := map[string]string{"PRI": "page requests (PRI)", "PASID": "PASIDs"}
	registers := func(f *device.Function) []facts.Fact { return switched(f, names...) }
	functions := assignable(n)
	found := over(functions, func(f *device.Function) Answer {
		var on []string
		for _, name := range names {
			if isEnabled(capability(f, name)) {
				on = append(on, cmp.Or(words[name], name))
			}
		}
		if len(on) == 0 {
			return nil
		}
		return fail(fmt.Sprintf("%s has %s on", f.Address, strings.Join(on, " and ")), registers(f)...).on(f)
	})
	return ofAssignable(n, append(found, unreadable(functions)...), registers)
}

// aboutFunction returns the function that a failure is about.
func aboutFunction(n *facts.Node, f *finding.Finding) (*device.Function, bool) {
	if f.State != finding.Fail || f.Device == nil {
		return nil, false
	}
	return n.Snapshot.Function(*f.Device)
}

func isEnabled(s *pci.Switchable) bool { return s != nil && s.Enabled }

package isolation

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// Domain is a part of the PCIe hierarchy within which requests can be routed without passing the IOMMU: all functions below a bridge or a
// switch's upstream port, the functions of one device, or all functions of one root bus. It is comparable. Only the fields of one of these
// three kinds are set.
type Domain struct {
	// Below is the bridge above the functions.
	Below pci.Address
	// Slot is function 0 of a device. Group is one more than the IOMMU group of the functions that count; 0 means all
	// functions.
	Slot  pci.Address
	Group int
	// Root is the root bus: "pci0000:3a".
	Root string
	kind scopeKind
}

type scopeKind uint8

const (
	rootScope scopeKind = iota
	bridgeScope
	slotScope
)

// String names the scope in a sentence: "switch or bridge 0000:3b:00.0".
func (s Domain) String() string {
	switch s.kind {
	case bridgeScope:
		return "switch or bridge " + s.Below.String()
	case slotScope:
		return "device " + s.Slot.String()
	case rootScope:
	}
	return "root complex " + s.Root
}

func below(bridge pci.Address) Domain { return Domain{Below: bridge, kind: bridgeScope} }

func slot(a pci.Address, group int) Domain {
	a.Function = 0
	return Domain{Slot: a, Group: group, kind: slotScope}
}

func root(f *device.Function) Domain { return Domain{Root: f.Root} }

// around returns all scopes that f is part of.
func around(f *device.Function) []Domain {
	scopes := []Domain{root(f), slot(f.Card(), 0), slot(f.Card(), groupKey(f))}
	for _, bridge := range f.Upstream {
		scopes = append(scopes, below(bridge), slot(bridge, 0), slot(bridge, groupKey(f)))
	}
	return scopes
}

func groupKey(f *device.Function) int {
	if f.Group == nil {
		return -1
	}
	return *f.Group + 1
}

// Bypass is one path on which requests of a function reach others without passing the IOMMU.
type Bypass struct {
	// From is the sending function. At is the port on the path, or the function itself, that does not forward the
	// requests upstream.
	From, At pci.Address
	// Domain is the part that they reach.
	Domain Domain
	// State is the state of At's registers: [ACSOff], [ACSAbsent], or [ACSUnknown] if they can't be read, so that a
	// bypass is only possible.
	State ACSState
}

// Bypasses returns the places that requests of f reach without passing the IOMMU, from the function up to the root: by
// the registers of each port on the path, or by the kernel's judgment if a port shows none (see [redirects]).
func Bypasses(s *device.Snapshot, f *device.Function) []Bypass {
	var bypasses []Bypass
	if state := ReadACS(s, f); multifunction(s, f) && state != ACSOn {
		into := slot(f.Card(), 0)
		if state == ACSAbsent { // functions in groups of their own the kernel vouches for
			into = slot(f.Card(), groupKey(f))
		}
		bypasses = append(bypasses, Bypass{f.Address, f.Address, into, state})
	}
	for i, bridge := range slices.Backward(f.Upstream) {
		port, ok := s.Function(bridge)
		if !ok {
			continue
		}
		if state := redirects(s, f, port); state != ACSOn {
			bypasses = append(bypasses, Bypass{f.Address, bridge, bypassDomain(f, port, i, state), state})
		}
	}
	return bypasses
}

// redirects returns whether a port above f forwards f's requests to the IOMMU. It is ACSOn if the port's registers show that. It is also
// ACSOn if the registers do not show it, but the kernel found at boot that the port forwards them (a quirk), and gave f a group without the
// port.
func redirects(s *device.Snapshot, f, port *device.Function) ACSState {
	state := ReadACS(s, port)
	vouched := port.Group != nil && f.Group != nil && *port.Group != *f.Group
	if vouched && (state == ACSAbsent || state == ACSUnknown && !port.Capabilities.Truncated) {
		return ACSOn
	}
	return state
}

// bypassDomain returns the domain of requests that the port, the i-th from the root, does not forward upstream: the
// other ports of a switch, or all functions of a shared bus. A root port that has redirection but does not use it may
// route to its neighbors. For a root port without ACS, the kernel expects that only of the ports of the same device
// (pci_device_group in drivers/iommu/iommu.c).
func bypassDomain(f, port *device.Function, i int, state ACSState) Domain {
	express := port.Capabilities.Express
	switch {
	case state == ACSAbsent && (express == nil || express.Type == pci.PCIeToPCI || express.Type == pci.PCIToPCIe):
		return below(port.Address)
	case i > 0:
		return below(f.Upstream[i-1])
	case state == ACSAbsent && express.Type == pci.RootPort:
		return slot(port.Address, groupKey(f))
	}
	return root(f)
}

// TranslatedBypasses returns the paths on which requests of f that are marked as translated reach others without
// passing the IOMMU: f has ATS on and a port above Direct Translated P2P.
func TranslatedBypasses(s *device.Snapshot, f *device.Function) []Bypass {
	if ats := f.Capabilities.ATS; ats == nil || !ats.Enabled {
		return nil
	}
	var bypasses []Bypass
	for i, bridge := range slices.Backward(f.Upstream) {
		port, ok := s.Function(bridge)
		if !ok || port.Capabilities.ACS == nil || port.Capabilities.ACS.Control&pci.ACSDirectTranslated == 0 {
			continue
		}
		bypasses = append(bypasses, Bypass{f.Address, bridge, bypassDomain(f, port, i, ACSOff), ACSOff})
	}
	return bypasses
}

// Assigned is a function that a tenant holds.
type Assigned struct {
	Function *device.Function
	// Tenants hold the function. They are several if sources contradict each other.
	Tenants []string
}

// SharedDomain is a domain that has functions of several tenants. At least one function reaches the domain by a bypass.
type SharedDomain struct {
	Domain Domain
	// Bypasses are in order of From, and never empty.
	Bypasses []Bypass
	// Devices are the assigned functions there, and Tenants their holders, both in order.
	Devices []pci.Address
	Tenants []string
}

// SharedDomains returns the domains in which functions of different tenants can reach each other, from the results of
// [Bypasses] or [TranslatedBypasses] for those functions. The work grows with the number of functions, not with the
// number of pairs.
func SharedDomains(held []Assigned, bypasses []Bypass) []SharedDomain {
	found := map[Domain]*SharedDomain{}
	for _, l := range bypasses {
		m := found[l.Domain]
		if m == nil {
			m = &SharedDomain{Domain: l.Domain}
			found[l.Domain] = m
		}
		m.Bypasses = append(m.Bypasses, l)
	}
	for i := range held {
		for _, scope := range around(held[i].Function) {
			// Two scopes of a function can be one domain. The function is then the last entry of Devices, so the check
			// needs only that one.
			if m := found[scope]; m != nil && !slices.Contains(m.Devices[max(0, len(m.Devices)-1):], held[i].Function.Address) {
				m.Devices = append(m.Devices, held[i].Function.Address)
				m.Tenants = append(m.Tenants, held[i].Tenants...)
			}
		}
	}
	return shared(found)
}

// shared returns the domains with several tenants, complete and in order.
func shared(found map[Domain]*SharedDomain) []SharedDomain {
	var meetings []SharedDomain
	for _, m := range found {
		slices.Sort(m.Tenants)
		m.Tenants = slices.Compact(m.Tenants)
		if len(m.Tenants) < 2 {
			continue
		}
		slices.SortFunc(m.Devices, pci.Address.Compare)
		slices.SortStableFunc(m.Bypasses, func(a, b Bypass) int { return a.From.Compare(b.From) })
		meetings = append(meetings, *m)
	}
	// The order of a map is random, and equal snapshots must give equal reports.
	slices.SortFunc(meetings, func(a, b SharedDomain) int {
		return cmp.Or(a.Devices[0].Compare(b.Devices[0]), cmp.Compare(a.Domain.String(), b.Domain.String()), cmp.Compare(a.Domain.Group, b.Domain.Group))
	})
	return meetings
}

// SetACS returns the command that writes a port's ACS control register, which is
// ECAP_ACS+6 in setpci's words.
func SetACS(port pci.Address, control uint16) string {
	return fmt.Sprintf("setpci -s %s ECAP_ACS+6.w=%04x", port, control)
}

// AssignmentSet returns every function that one tenant must have together with f: f itself, the members of its IOMMU group without bridges,
// and f's companions ([device.Snapshot.Companions]) with the members of their groups. The result is in order of address and contains each
// function once.
func AssignmentSet(s *device.Snapshot, f *device.Function) []*device.Function {
	taken := []*device.Function{f}
	for _, seed := range append(s.Companions(f), f) {
		taken = append(taken, seed)
		if g, ok := s.GroupWith(seed); ok {
			taken = append(taken, endpoints(s.Members(g))...)
		}
	}
	slices.SortFunc(taken, func(a, b *device.Function) int { return a.Address.Compare(b.Address) })
	return slices.CompactFunc(taken, func(a, b *device.Function) bool { return a.Address == b.Address })
}

func endpoints(members []*device.Function) []*device.Function {
	return slices.DeleteFunc(members, (*device.Function).IsBridge)
}

// listAddresses returns the addresses of functions.
func listAddresses(fns []*device.Function) []pci.Address {
	addrs := make([]pci.Address, len(fns))
	for i, f := range fns {
		addrs[i] = f.Address
	}
	return addrs
}

package isolation

import (
	"fmt"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// DomainKind is a kind of hardware that a rule of the node config can give to one tenant at a time. The values are those
// of the API (ExclusiveDomain).
type DomainKind string

// Kinds of exclusive domains.
const (
	CardDomain     DomainKind = "Card"
	PFDomain       DomainKind = "PF"
	SwitchDomain   DomainKind = "Switch"
	RootPortDomain DomainKind = "RootPort"
	NUMADomain     DomainKind = "NUMA"
	NodeDomain     DomainKind = "Node"
	FabricDomain   DomainKind = "Fabric"
)

// DomainKinds returns all kinds of exclusive domains, the smallest first.
func DomainKinds() []DomainKind {
	return []DomainKind{CardDomain, PFDomain, SwitchDomain, RootPortDomain, NUMADomain, NodeDomain, FabricDomain}
}

// ExclusiveDomain is one part of the hardware, such as the switch at 0000:21:00.0. It is comparable.
type ExclusiveDomain struct {
	Kind DomainKind `json:"kind"`
	// Name tells the domains of a kind on a node apart: an address, a root bus, a NUMA node, or a vendor.
	Name string `json:"name,omitempty"`
}

// String names the domain in a sentence: "switch 0000:21:00.0".
func (d ExclusiveDomain) String() string {
	switch d.Kind {
	case CardDomain:
		return "card " + d.Name
	case PFDomain:
		return "physical function " + d.Name
	case SwitchDomain:
		return "switch " + d.Name
	case RootPortDomain:
		return "root port " + d.Name
	case NUMADomain:
		return "NUMA node " + d.Name
	case FabricDomain:
		return "fabric of the GPUs of vendor " + d.Name
	case NodeDomain:
	}
	return "node"
}

// Key identifies the domain on its node: "Switch/0000:21:00.0", "Node".
func (d ExclusiveDomain) Key() string {
	if d.Name == "" {
		return string(d.Kind)
	}
	return string(d.Kind) + "/" + d.Name
}

// Overlap returns a domain that two devices of a node share, by [ExclusiveDomain.Key]; empty if they share none. The domain of the whole
// node overlaps with every other one.
func Overlap(a, b []string) string {
	for _, x := range a {
		for _, y := range b {
			if x == y || x == string(NodeDomain) {
				return y
			}
			if y == string(NodeDomain) {
				return x
			}
		}
	}
	return ""
}

// unknownNUMA is the name of the domain of all functions whose NUMA node the firmware does not tell. They may be on any node, so they form
// one domain.
const unknownNUMA = "unknown"

// DomainAround returns the domain of a kind that f is in. It returns false if there is none: for a switch, if no switch is above f; for the
// fabric, if f is neither a GPU, nor a VF of one, nor an NVSwitch. Any GPU counts, even on a node without NVLink.
func DomainAround(s *device.Snapshot, f *device.Function, kind DomainKind) (ExclusiveDomain, bool) {
	name, ok := "", true
	switch kind {
	case CardDomain:
		name = s.Card(f).String()
	case PFDomain:
		name = physical(s, f).Address.String()
	case SwitchDomain:
		var port pci.Address
		port, ok = nearestSwitch(s, f)
		name = port.String()
	case RootPortDomain:
		name = rootPort(f)
	case NUMADomain:
		name = unknownNUMA
		if f.NUMANode != nil {
			name = fmt.Sprint(*f.NUMANode)
		}
	case NodeDomain:
	case FabricDomain:
		name, ok = f.Vendor.String(), f.Type == device.GPU || f.Type == device.GPUVF || f.IsNVSwitch()
		if f.ManagesSwitches() { // those of NVIDIA's GPUs
			name = pci.VendorNVIDIA.String()
		}
	default:
		return ExclusiveDomain{}, false
	}
	if !ok {
		return ExclusiveDomain{}, false
	}
	return ExclusiveDomain{kind, name}, true
}

// DomainsAround returns all domains of a kind that f is in. A function below several switches is in the domain of each of them, not only of
// the nearest: a rule that makes a switch exclusive means everything below it.
func DomainsAround(s *device.Snapshot, f *device.Function, kind DomainKind) []ExclusiveDomain {
	if kind == SwitchDomain {
		var all []ExclusiveDomain
		for _, port := range Switches(s, f) {
			all = append(all, ExclusiveDomain{kind, port.String()})
		}
		return all
	}
	if d, ok := DomainAround(s, f, kind); ok {
		return []ExclusiveDomain{d}
	}
	return nil
}

// physical returns the PF of a VF, and any other function itself. The PF of a VF is in each snapshot with the VF.
func physical(s *device.Snapshot, f *device.Function) *device.Function {
	if f.VF == nil {
		return f
	}
	if pf, ok := s.Function(f.VF.PF); ok {
		return pf
	}
	return &device.Function{Address: f.VF.PF}
}

// nearestSwitch returns the upstream port of the switch that is nearest to f. A switch has one upstream port, which
// identifies it (PCIe 6.0, 1.3.3).
func nearestSwitch(s *device.Snapshot, f *device.Function) (pci.Address, bool) {
	for _, switched := range slices.Backward(Switches(s, f)) {
		return switched, true
	}
	return pci.Address{}, false
}

// Switches returns the upstream ports of the switches above f, the nearest to the root first.
func Switches(s *device.Snapshot, f *device.Function) []pci.Address {
	var all []pci.Address
	for _, bridge := range f.Upstream {
		port, ok := s.Function(bridge)
		if ok && port.Capabilities.Express != nil && port.Capabilities.Express.Type == pci.UpstreamPort {
			all = append(all, bridge)
		}
	}
	return all
}

// rootPort returns the root port above f; the root bus of a function that is integrated into the root complex.
func rootPort(f *device.Function) string {
	if len(f.Upstream) > 0 {
		return f.Upstream[0].String()
	}
	return f.Root
}

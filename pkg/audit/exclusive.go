package audit

import (
	"slices"
	"strconv"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// Domain is an exclusive domain of a node. Lists are never null in JSON.
type Domain struct {
	Kind isolation.DomainKind `json:"kind"`
	// Name is an address, a root bus, a NUMA node or a vendor; empty for the node.
	Name string `json:"name,omitempty"`
	// Rules are the rules of the node config that make it exclusive.
	Rules []string `json:"rules"`
	// Tenant is the ID of the tenant that has it; empty if it is free. See [plan.DomainState.Tenant].
	Tenant string `json:"tenant,omitempty"`
	// Held are the functions that tenants have, and Free the selected functions that no claim has.
	Held []pci.Address `json:"held"`
	Free []pci.Address `json:"free"`
}

func newDomains(states []plan.DomainState) []Domain {
	var all []Domain
	for i := range states {
		s := &states[i]
		d := Domain{Kind: s.Domain.Kind, Name: s.Domain.Name, Rules: s.Rules, Tenant: s.Tenant(), Held: []pci.Address{}, Free: list(s.Free)}
		for _, t := range s.Tenancies {
			d.Held = append(d.Held, t.Function)
		}
		all = append(all, d)
	}
	return all
}

// words is the domain's state where its name is shown: "exclusive switch: tenant 0123456789abcdef".
func (d *Domain) words() string {
	name := strings.TrimSpace(isolation.ExclusiveDomain{Kind: d.Kind}.String())
	if d.Kind == isolation.FabricDomain {
		name = "fabric of vendor " + d.Name
	}
	return "exclusive " + name + ": " + plan.TenantWords(d.Tenant)
}

// exclusiveAt returns the states of the domains that begin at a function: its switch, root port, card or PF.
func (inv *Inventory) exclusiveAt(d *Device) []string {
	return inv.exclusiveWhere(func(x *Domain) bool {
		switch x.Kind {
		case isolation.CardDomain, isolation.PFDomain, isolation.SwitchDomain, isolation.RootPortDomain:
			return x.Name == d.Address.String()
		case isolation.NUMADomain, isolation.NodeDomain, isolation.FabricDomain:
		}
		return false
	})
}

// exclusiveOn returns the states of the domains that a root bus is, or is in.
func (inv *Inventory) exclusiveOn(r *Root) []string {
	return inv.exclusiveWhere(func(x *Domain) bool {
		return x.Kind == isolation.RootPortDomain && x.Name == r.Name ||
			x.Kind == isolation.NUMADomain && r.NUMA != nil && x.Name == strconv.Itoa(*r.NUMA)
	})
}

// exclusiveBeyond returns the states of the domains that no place in the tree stands for.
func (inv *Inventory) exclusiveBeyond() []string {
	return inv.exclusiveWhere(func(x *Domain) bool {
		unknownNUMA := x.Kind == isolation.NUMADomain && !slices.ContainsFunc(inv.Devices, func(d Device) bool {
			return d.NUMANode != nil && x.Name == strconv.Itoa(*d.NUMANode)
		})
		return unknownNUMA || x.Kind == isolation.NodeDomain || x.Kind == isolation.FabricDomain
	})
}

func (inv *Inventory) exclusiveWhere(so func(*Domain) bool) []string {
	var all []string
	for i := range inv.ExclusiveDomains {
		if d := &inv.ExclusiveDomains[i]; so(d) {
			all = append(all, d.words())
		}
	}
	return all
}

// beyondBranches are the lines of the domains that no place in the tree stands for.
func (inv *Inventory) beyondBranches() []output.Branch {
	var all []output.Branch
	for _, words := range inv.exclusiveBeyond() {
		all = append(all, output.Branch{Text: words})
	}
	return all
}

// keptFor returns the tenant of the function's domain, if that is all that keeps the function from claims; otherwise "".
func (d *Device) keptFor() string {
	tenant := ""
	for i := range d.Refusals {
		switch r := &d.Refusals[i]; {
		case r.Code == rule.DomainOfOtherTenant:
			tenant = r.Object
		case !d.explained(r):
			return ""
		}
	}
	if len(d.Reasons) > 0 || d.has(rule.NotOurs) {
		return ""
	}
	return tenant
}

// Waits is the state of a function that only its sanitizing stage or an exclusive domain keeps from claims; otherwise "".
func (d *Device) Waits() string {
	switch {
	case d.Sanitizing:
		return sanitizing
	case d.KeptFor != "":
		return plan.KeptWords(d.KeptFor)
	}
	return ""
}

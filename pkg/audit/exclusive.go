package audit

import (
	"slices"
	"strconv"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// domainWords returns a domain's state for a place that already shows the domain's name: "exclusive switch: tenant 0123456789abcdef".
func domainWords(d *plan.DomainState) string {
	name := strings.TrimSpace(isolation.ExclusiveDomain{Kind: d.Domain.Kind}.String())
	if d.Domain.Kind == isolation.FabricDomain {
		name = "fabric of vendor " + d.Domain.Name
	}
	return "exclusive " + name + ": " + plan.TenantWords(d.Tenant)
}

// exclusiveAt returns the states of the domains that begin at a function: its switch, root port, card or PF.
func (inv *Inventory) exclusiveAt(d *Device) []string {
	return inv.exclusiveWhere(func(x *isolation.ExclusiveDomain) bool {
		switch x.Kind {
		case isolation.CardDomain, isolation.PFDomain, isolation.SwitchDomain, isolation.RootPortDomain:
			return x.Name == d.Address.String()
		case isolation.NUMADomain, isolation.NodeDomain, isolation.FabricDomain:
		}
		return false
	})
}

// exclusiveOn returns the states of the domains that are the root bus itself or contain it.
func (inv *Inventory) exclusiveOn(r *Root) []string {
	return inv.exclusiveWhere(func(x *isolation.ExclusiveDomain) bool {
		return x.Kind == isolation.RootPortDomain && x.Name == r.Name ||
			x.Kind == isolation.NUMADomain && r.NUMA != nil && x.Name == strconv.Itoa(*r.NUMA)
	})
}

// exclusiveBeyond returns the states of the domains without a place in the tree.
func (inv *Inventory) exclusiveBeyond() []string {
	return inv.exclusiveWhere(func(x *isolation.ExclusiveDomain) bool {
		unknownNUMA := x.Kind == isolation.NUMADomain && !slices.ContainsFunc(inv.Devices, func(d Device) bool {
			return d.NUMANode != nil && x.Name == strconv.Itoa(*d.NUMANode)
		})
		return unknownNUMA || x.Kind == isolation.NodeDomain || x.Kind == isolation.FabricDomain
	})
}

func (inv *Inventory) exclusiveWhere(so func(*isolation.ExclusiveDomain) bool) []string {
	var all []string
	for i := range inv.ExclusiveDomains {
		if d := &inv.ExclusiveDomains[i]; so(&d.Domain) {
			all = append(all, domainWords(d))
		}
	}
	return all
}

// beyondBranches returns the lines of the domains without a place in the tree.
func (inv *Inventory) beyondBranches() []output.Branch {
	var all []output.Branch
	for _, words := range inv.exclusiveBeyond() {
		all = append(all, output.Branch{Text: words})
	}
	return all
}

// keptFor returns the tenant of the function's exclusive domain, if nothing else keeps the function from claims; otherwise "".
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
	if len(d.Reasons) > 0 || d.isLeftOut() {
		return ""
	}
	return tenant
}

// Waits returns the state of a function if only its sanitizing stage or an exclusive domain keeps it from claims; otherwise "".
func (d *Device) Waits() string {
	switch {
	case d.Sanitizing:
		return sanitizing
	case d.KeptFor != "":
		return plan.KeptWords(d.KeptFor)
	}
	return ""
}

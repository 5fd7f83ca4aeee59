package plan

import (
	"cmp"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// DomainState is an exclusive domain of a node with what is in it. Its JSON names are stable, and its lists never null.
type DomainState struct {
	Domain isolation.ExclusiveDomain `json:"domain"`
	// Rules are the labels of the rules that make it exclusive, in the order of their functions.
	Rules []string `json:"rules"`
	// Tenant is the ID of the domain's tenant: empty if the domain is free, [UnknownTenant], or [SeveralTenants].
	Tenant string `json:"tenant,omitempty"`
	// Tenancies are the functions in the domain that tenants have, by address.
	Tenancies []Tenancy `json:"held"`
	// Free are the selected functions in the domain that no claim has and that are in no tenancy, by address.
	Free []pci.Address `json:"free"`
}

// commonTenant returns the ID for [DomainState.Tenant].
func commonTenant(tenancies []Tenancy) string {
	if len(tenancies) == 0 {
		return ""
	}
	first := tenancies[0].Tenant
	if slices.ContainsFunc(tenancies, func(t Tenancy) bool { return t.Tenant != first }) {
		return SeveralTenants
	}
	return first
}

// TenantWords names the tenant of a domain, by [DomainState.Tenant]: "tenant 0123456789abcdef", "several tenants".
func TenantWords(id string) string {
	switch id {
	case "":
		return "no tenant"
	case UnknownTenant:
		return "an unknown tenant"
	case SeveralTenants:
		return "several tenants"
	}
	return "tenant " + id
}

// KeptWords describes a free device in a domain that a tenant has. id is the [DomainState.Tenant] of the domain.
func KeptWords(id string) string {
	if id == UnknownTenant || id == SeveralTenants {
		return "kept: its domain has " + TenantWords(id)
	}
	return "kept for " + TenantWords(id)
}

// Domains returns the exclusive domains of the node, the smallest kind first. A rule makes a domain exclusive for all
// functions in the domain, even for functions that another rule selects.
func (n *Node) Domains() []DomainState {
	domains := n.exclusiveDomains()
	states := make(map[isolation.ExclusiveDomain]*DomainState, len(domains))
	for d, tenancies := range domains {
		states[d] = &DomainState{Domain: d, Rules: []string{}, Tenant: commonTenant(tenancies), Tenancies: append([]Tenancy{}, tenancies...), Free: []pci.Address{}}
	}
	for i := range n.Snapshot.Functions {
		f := &n.Snapshot.Functions[i]
		choice := n.Selection.Choice(f.Address)
		for _, kind := range choice.Exclusive {
			if d, ok := isolation.DomainAround(n.Snapshot, f, isolation.DomainKind(kind)); ok && !slices.Contains(states[d].Rules, choice.Rule) {
				states[d].Rules = append(states[d].Rules, choice.Rule)
			}
		}
		if !choice.Ours || !n.isFree(f.Address) {
			continue
		}
		for _, d := range within(n.Snapshot, f, domains) {
			if s := states[d]; !slices.ContainsFunc(s.Tenancies, func(t Tenancy) bool { return t.Function == f.Address }) {
				s.Free = append(s.Free, f.Address)
			}
		}
	}
	return sortDomains(states)
}

// isFree reports whether no claim has the function.
func (n *Node) isFree(a pci.Address) bool {
	owner, owned := n.Owners[a]
	return !owned || owner.Bound
}

func sortDomains(states map[isolation.ExclusiveDomain]*DomainState) []DomainState {
	kinds := isolation.DomainKinds()
	all := make([]DomainState, 0, len(states))
	for _, s := range states {
		all = append(all, *s)
	}
	slices.SortFunc(all, func(a, b DomainState) int {
		x, y := a.Domain, b.Domain
		return cmp.Or(
			cmp.Compare(slices.Index(kinds, x.Kind), slices.Index(kinds, y.Kind)),
			cmp.Compare(len(x.Name), len(y.Name)), cmp.Compare(x.Name, y.Name), // NUMA node 2 comes before 10
		)
	})
	return all
}

// Fragmented returns, for each kind of exclusive domain, how many free functions a domain keeps for its tenant. A
// function does not count if another reason keeps all tenants from it.
func (n *Node) Fragmented() map[isolation.DomainKind]int {
	domains := n.Domains()
	if len(domains) == 0 {
		return nil
	}
	assessor := NewAssessor(*n)
	counts := map[isolation.DomainKind]int{}
	for i := range domains {
		d := &domains[i]
		// A kind has a count even if none of its functions is kept.
		counts[d.Domain.Kind] += 0
		if len(d.Tenancies) == 0 {
			continue
		}
		for _, a := range d.Free {
			f, ok := n.Snapshot.Function(a)
			if !ok {
				continue
			}
			if as := assessor.Assess(f); isKeptOnly(as.Faults()) {
				counts[d.Domain.Kind]++
			}
		}
	}
	return counts
}

// isKeptOnly reports whether an exclusive domain is the only reason against a function.
func isKeptOnly(faults []rule.Verdict) bool {
	return !slices.ContainsFunc(faults, func(r rule.Verdict) bool { return r.Code != rule.DomainOfOtherTenant })
}

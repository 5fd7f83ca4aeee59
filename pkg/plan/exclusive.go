package plan

import (
	"fmt"
	"maps"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// UnknownTenant is the ID for a tenant that is not known, because its claim was prepared before a rule of the node
// config made the domain exclusive. No tenant has this ID, so no claim may join such a domain.
const UnknownTenant = "unknown"

// SeveralTenants is the ID for a domain that has several tenants. Their claims were prepared before the domain was
// exclusive.
const SeveralTenants = "several"

// Tenancy is a function that a tenant has in an exclusive domain: a claim has it, it is in quarantine after a claim, or it
// waits for its sanitizing stage.
type Tenancy struct {
	Function pci.Address `json:"address"`
	// Tenant is the tenant's ID, or [UnknownTenant].
	Tenant string `json:"tenant"`
}

// exclusiveDomains returns each exclusive domain of the node with its tenancies, by address. A free domain has none.
func (n *Node) exclusiveDomains() map[isolation.ExclusiveDomain][]Tenancy {
	made := MakeDomains(n.Snapshot, n.Selection)
	if made == nil {
		return nil
	}
	domains := make(map[isolation.ExclusiveDomain][]Tenancy, len(made.reserved))
	for d := range made.reserved {
		domains[d] = nil
	}
	tenancies := n.tenancies()
	for _, a := range slices.SortedFunc(maps.Keys(tenancies), pci.Address.Compare) {
		for _, d := range n.tenantDomains(a, domains) {
			domains[d] = append(domains[d], Tenancy{a, tenancies[a]})
		}
	}
	return domains
}

// tenantDomains returns the domains of a function that a tenant has. If a claim has the function and the snapshot does
// not, the function counts for all domains: the snapshot may be older than the function, and nobody can tell where the
// function is. If a function in quarantine is gone, it counts for no domain, because it reaches nothing.
func (n *Node) tenantDomains(a pci.Address, domains map[isolation.ExclusiveDomain][]Tenancy) []isolation.ExclusiveDomain {
	if f, ok := n.Snapshot.Function(a); ok {
		return within(n.Snapshot, f, domains)
	}
	if n.Owners[a].Quarantined != "" {
		return nil
	}
	return slices.Collect(maps.Keys(domains))
}

// MadeDomains are the exclusive domains that the rules of a node's config make. They are immutable.
type MadeDomains struct {
	snapshot *device.Snapshot
	// reserved has each domain, and whether pods wait until it is reserved for their tenant.
	reserved map[isolation.ExclusiveDomain]bool
}

// MakeDomains returns the exclusive domains of a node; nil if no rule makes one.
func MakeDomains(s *device.Snapshot, selection *nodeconfig.Selection) *MadeDomains {
	var made *MadeDomains
	for i := range s.Functions {
		f := &s.Functions[i]
		choice := selection.Choice(f.Address)
		for _, kind := range choice.Exclusive {
			d, ok := isolation.DomainAround(s, f, isolation.DomainKind(kind))
			if !ok {
				continue
			}
			if made == nil {
				made = &MadeDomains{snapshot: s, reserved: map[isolation.ExclusiveDomain]bool{}}
			}
			made.reserved[d] = made.reserved[d] || choice.ReserveDomains
		}
	}
	return made
}

// Around returns the domains that f is in, the smallest kind first, and whether pods wait until these domains are
// reserved. A nil MadeDomains has no domains.
func (m *MadeDomains) Around(f *device.Function) (domains []isolation.ExclusiveDomain, reserve bool) {
	if m == nil {
		return nil, false
	}
	domains = within(m.snapshot, f, m.reserved)
	return domains, slices.ContainsFunc(domains, func(d isolation.ExclusiveDomain) bool { return m.reserved[d] })
}

// within returns the domains that f is in, the smallest kind first.
func within[V any](s *device.Snapshot, f *device.Function, domains map[isolation.ExclusiveDomain]V) []isolation.ExclusiveDomain {
	var all []isolation.ExclusiveDomain
	for _, kind := range isolation.DomainKinds() {
		for _, d := range isolation.DomainsAround(s, f, kind) {
			if _, exclusive := domains[d]; exclusive {
				all = append(all, d)
			}
		}
	}
	return all
}

// tenancies returns the functions that tenants have, with the tenants' IDs. A sanitizing stage is not a tenant: its
// function still counts for the last tenant.
func (n *Node) tenancies() map[pci.Address]string {
	all := map[pci.Address]string{}
	for a, s := range n.Sanitizing {
		if s.HadTenant {
			all[a] = tenantID(s.Tenant)
		}
	}
	// Owners come last: the claim that has a function now counts before the tenant of a mark.
	for a, o := range n.Owners {
		if isStage := n.Stages.Namespace != "" && o.Claim.Namespace == n.Stages.Namespace; !isStage && !o.Bound {
			all[a] = tenantID(o.Claim.Tenant)
		}
	}
	return all
}

func tenantID(id string) string {
	if id == "" {
		return UnknownTenant
	}
	return id
}

// exclusive refuses a function in a domain of another tenant. Without a claim, it refuses the function for any tenant,
// and the refusal names the domain's tenant: so the free functions of the domain are tainted for all other tenants.
func (c *candidate) exclusive() *rule.Verdict {
	isClaim := c.asked != nil
	if isClaim && (c.ref.Namespace == "" || c.isStage()) {
		return nil // the plugin itself, or the operator's sanitizer: no tenant gets the function
	}
	domains := c.known.domains(&c.node)
	if len(domains) == 0 {
		return nil // without such rules, the names of the domains around each function are not needed
	}
	refused := c.set.having(isOfOtherTenant, func(f *device.Function) bool { return c.inDomainOfOther(f, domains) != nil })
	if len(refused) == 0 {
		return nil
	}
	return c.inDomainOfOther(refused[0], domains)
}

// inDomainOfOther refuses f if one of its domains has another tenant.
func (c *candidate) inDomainOfOther(f *device.Function, domains map[isolation.ExclusiveDomain][]Tenancy) *rule.Verdict {
	if o, held := c.node.Owners[f.Address]; held && !o.Bound && c.asked == nil {
		return nil // the scheduler knows that its claim has it
	}
	for _, d := range within(c.node.Snapshot, f, domains) {
		if r := c.ofOtherTenant(f, d, domains[d]); r != nil {
			return r
		}
	}
	return nil
}

// ofOtherTenant refuses f if its domain has another tenant than the claim's.
func (c *candidate) ofOtherTenant(f *device.Function, d isolation.ExclusiveDomain, tenancies []Tenancy) *rule.Verdict {
	var others []Tenancy // those of other claims and tenants
	for _, t := range tenancies {
		own := c.ref.Tenant != "" && t.Tenant == c.ref.Tenant
		if ownClaim := c.ref.UID != "" && c.node.Owners[t.Function].Claim.UID == c.ref.UID; !own && !ownClaim {
			others = append(others, t)
		}
	}
	if len(others) == 0 {
		return nil
	}
	r := c.mate(f, rule.DomainOfOtherTenant,
		fmt.Sprintf("%s is in the exclusive domain %s, which is another tenant's while that tenant has %s", f.Address, d, others[0].Function),
		"delete the pod and create it again, so that the scheduler allocates a device elsewhere, or wait until the other tenant's last claim in the domain has ended")
	r.Object = commonTenant(others)
	return r
}

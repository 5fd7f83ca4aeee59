package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// sharedSwitches reports each switch above functions of several tenants. A person has to decide whether this is acceptable, unless
// a rule of the node config makes the switch exclusive.
func sharedSwitches(n *facts.Node) Answer {
	exclusive := domainsWhere(n, func(d *plan.DomainState) bool { return d.Domain.Kind == isolation.SwitchDomain })
	below := map[pci.Address][]pci.Address{}
	var switches []pci.Address
	held := holdings(n)
	for _, h := range held {
		for _, s := range isolation.Switches(n.Snapshot, h.Function) {
			if below[s] == nil {
				switches = append(switches, s)
			}
			below[s] = append(below[s], h.Function.Address)
		}
	}
	found := over(switches, func(s pci.Address) Answer {
		tenants := n.Owners(below[s]...)
		if len(tenants) < 2 || decided(n, exclusive, s, below[s]) {
			return nil
		}
		return say(finding.Manual, fmt.Sprintf("%s share switch %s: decide whether they may share its bandwidth", strings.Join(tenants, ", "), s), nil).
			reaching(below[s]...).object("switch " + s.String())
	})
	found = append(found, judgeDomains(n, exclusive)...)
	return showing(found.or(pass("each switch has one tenant at most", n.Journal())), held, func(h isolation.Assigned) []facts.Fact { return above(n, h.Function) })
}

// decided reports whether a rule makes the switch exclusive for all the functions, which are below it. Records of another boot
// don't count.
func decided(n *facts.Node, exclusive []plan.DomainState, at pci.Address, below []pci.Address) bool {
	i := slices.IndexFunc(exclusive, func(d plan.DomainState) bool { return d.Domain.Name == at.String() })
	if i < 0 {
		return false
	}
	for _, a := range below {
		isIn := slices.ContainsFunc(exclusive[i].Tenancies, func(t plan.Tenancy) bool { return t.Function == a })
		if isHeld := slices.ContainsFunc(n.TenanciesAt(a), func(t facts.Tenancy) bool { return n.IsThisBoot(t.Record) }); isHeld && !isIn {
			return false
		}
	}
	return true
}

// exclusiveDomains judges the exclusive domains that are not switches, and the past tenants of all exclusive domains by the ledger.
func exclusiveDomains(n *facts.Node) Answer {
	if unread := n.Domains().Unread; !unread.Known() {
		return unknown("which domains of the hardware are exclusive, and which tenants have them", unread)
	}
	others := domainsWhere(n, func(d *plan.DomainState) bool { return d.Domain.Kind != isolation.SwitchDomain })
	all := n.Domains().All
	var met Answer
	for i := range all { // switches, too: ACS-019 does not check them by the ledger, because the plugin runs it and does not read the whole ledger
		met = append(met, metBefore(n, &all[i])...)
	}
	return append(met, judgeDomains(n, others)...).or(notApplicable("no rule of the node config makes a card, a NUMA node or another domain exclusive"))
}

func domainsWhere(n *facts.Node, so func(*plan.DomainState) bool) []plan.DomainState {
	return slices.DeleteFunc(slices.Clone(n.Domains().All), func(d plan.DomainState) bool { return !so(&d) })
}

// judgeDomains returns a finding for each domain with several tenants, and a pass for all others. It is empty without domains.
func judgeDomains(n *facts.Node, domains []plan.DomainState) Answer {
	found, good := Answer{}, []plan.DomainState{}
	for i := range domains {
		if wrong := severalTenants(n, &domains[i]); wrong != nil {
			found = append(found, wrong...)
			continue
		}
		good = append(good, domains[i])
	}
	if len(good) == 0 {
		return found
	}
	text := count(len(good), "exclusive domain") + " with one tenant at most"
	passed := showing(pass(text, n.Journal()), good, func(d plan.DomainState) []facts.Fact { return ofDomain(n, &d) })
	return append(found, passed...)
}

// severalTenants judges one domain. It returns nothing if one tenant has it, or none. A claim that was prepared before the rule
// has no ID of its tenant.
func severalTenants(n *facts.Node, d *plan.DomainState) Answer {
	functions := make([]pci.Address, len(d.Tenancies))
	for i := range d.Tenancies {
		functions[i] = d.Tenancies[i].Function
	}
	about := func(a Answer) Answer { return a.object(d.Domain.String()).reaching(functions...) }
	unread := n.Domains().Unread
	switch tenant := d.Tenant; {
	// Two known tenants are a failure even if a file is unreadable: it could only add a third.
	case tenant == plan.SeveralTenants:
		text := fmt.Sprintf("the exclusive domain %s has several tenants: %s", d.Domain, strings.Join(tenancyWords(d), ", "))
		return about(fail(text, ofDomain(n, d)...)).weighs(rule.High)
	case !unread.Known():
		return about(unknown("which tenant has the exclusive domain "+d.Domain.String(), unread))
	case tenant == plan.UnknownTenant:
		if namespaces := n.Tenants(functions...); len(namespaces) > 1 {
			text := fmt.Sprintf("can't tell whether %s are one tenant, which share the exclusive domain %s: their claims were prepared before it was exclusive", strings.Join(namespaces, ", "), d.Domain)
			return about(say(finding.Unknown, text, ofDomain(n, d)))
		}
	}
	return nil
}

// metBefore reports whether, by the ledger, a tenant got a function in a domain while another tenant had one there. It returns one
// finding for the domain.
func metBefore(n *facts.Node, d *plan.DomainState) Answer {
	var met []facts.Sharing
	for _, m := range n.Sharings() {
		if m.Domain == d.Domain {
			met = append(met, m)
		}
	}
	if len(met) == 0 {
		return nil
	}
	m := &met[0]
	text := fmt.Sprintf("the exclusive domain %s had two tenants: claim %s got %s at %s, while claim %s had %s", d.Domain, claimWords(m.Second), m.Second.Device.Address,
		m.Since(), claimWords(m.First), m.First.Device.Address)
	if len(met) > 1 {
		text += "; and " + count(len(met)-1, "more time")
	}
	_, from := n.Ledger()
	from.Value = fmt.Sprintf("events %v and %v", m.First.Events, m.Second.Events)
	return fail(text, from, n.Domains().Config).object(d.Domain.String()).reaching(m.First.Device.Address, m.Second.Device.Address).weighs(rule.High)
}

func claimWords(t *facts.PastTenancy) string {
	return fmt.Sprintf("%s/%s of tenant %s", t.Claim.Namespace, t.Claim.Name, t.Claim.Tenant)
}

// tenancyWords names the tenant of each function: "0000:23:00.0 is tenant 0123456789abcdef's".
func tenancyWords(d *plan.DomainState) []string {
	words := make([]string, 0, maxNamed)
	for _, t := range d.Tenancies[:min(len(d.Tenancies), maxNamed)] {
		if t.Tenant == plan.UnknownTenant {
			words = append(words, t.Function.String()+" is an unknown tenant's")
			continue
		}
		words = append(words, fmt.Sprintf("%s is tenant %s's", t.Function, t.Tenant))
	}
	if more := len(d.Tenancies) - maxNamed; more > 0 {
		words = append(words, fmt.Sprintf("%d more", more))
	}
	return words
}

// ofDomain returns the rules that make a domain exclusive, and the records by which tenants have it.
func ofDomain(n *facts.Node, d *plan.DomainState) []facts.Fact {
	by := n.Domains().Config
	by.Value = fmt.Sprintf("%s: exclusive: [%s]", strings.Join(d.Rules, ", "), d.Domain.Kind)
	seen := []facts.Fact{by}
	for _, t := range d.Tenancies {
		records := n.TenanciesAt(t.Function)
		for i := range records {
			seen = append(seen, recordFact(records[i].Record, fmt.Sprintf("%s: tenant %s, %s", t.Function, t.Tenant, records[i].Record.State)))
		}
		if len(records) == 0 {
			marks := "/" + journal.DefaultDir + "/" + journal.UnsanitizedDir
			seen = append(seen, facts.Fact{Path: marks, Value: fmt.Sprintf("%s: tenant %s had it last, not sanitized since", t.Function, t.Tenant), How: "journal"})
		}
	}
	return seen
}

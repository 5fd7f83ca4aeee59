package facts

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// Owners returns the tenants that have any of the functions, like [Node.Tenants], but joins the namespaces of one tenant into one
// name. It knows the tenants by the IDs that claims have on a node with exclusive domains (`tenancy.label` of the chart).
func (n *Node) Owners(addrs ...pci.Address) []string {
	var owners []string
	for _, a := range addrs {
		for _, t := range n.TenanciesAt(a) {
			owners = append(owners, n.Owner(&t))
		}
	}
	slices.Sort(owners)
	return slices.Compact(owners)
}

// Owner returns the tenant of a tenancy of the node, by the name that [Node.Owners] gives it.
func (n *Node) Owner(t *Tenancy) string {
	type key struct{}
	return Memo(n, key{}, func() *tenantIDs { return identify(n.Tenancies) }).owner(t)
}

// set is a set of words.
type set map[string]bool

// tenantIDs are the tenant IDs of each namespace, and the namespaces of each tenant ID, by the journal.
type tenantIDs struct{ ofNamespace, namespaces map[string]set }

func identify(all []Tenancy) *tenantIDs {
	ids := &tenantIDs{ofNamespace: map[string]set{}, namespaces: map[string]set{}}
	add := func(to map[string]set, key, word string) {
		if to[key] == nil {
			to[key] = set{}
		}
		to[key][word] = true
	}
	for i := range all {
		if id := all[i].Record.Plan.Claim.Tenant; id != "" {
			add(ids.ofNamespace, all[i].Tenant(), id)
			add(ids.namespaces, id, all[i].Tenant())
		}
	}
	return ids
}

// owner names the tenant of a tenancy. A namespace that was deleted and created again is another tenant, with an ID of its own. A
// record without an ID belongs to its namespace. The tenant of that namespace is known if all its other records have the same ID.
func (ids *tenantIDs) owner(t *Tenancy) string {
	namespace, id := t.Tenant(), t.Record.Plan.Claim.Tenant
	known := slices.Sorted(maps.Keys(ids.ofNamespace[namespace]))
	if len(known) > 1 && id != "" {
		return fmt.Sprintf("%s (tenant %s)", namespace, id)
	}
	if len(known) != 1 || len(ids.namespaces[known[0]]) == 1 {
		return namespace
	}
	return strings.Join(slices.Sorted(maps.Keys(ids.namespaces[known[0]])), " and ") + " (one tenant)"
}

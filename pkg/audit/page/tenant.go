package page

import (
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/audit/topology"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// tenant is one of those who have or had functions, and how it is shown.
type tenant struct {
	Name   string
	Letter string
	// Color is one of the page's few: letters and names tell tenants apart.
	Color int
	// Functions and Claims count what it has now.
	Functions, Claims int
}

// tenants knows all who are on the page.
type tenants struct {
	list []tenant
	now  map[pci.Address][]*Tenancy
	ever map[pci.Address][]*Tenancy
}

func newTenants(tenancies []Tenancy, findings []finding.Finding) *tenants {
	who := &tenants{now: map[pci.Address][]*Tenancy{}, ever: map[pci.Address][]*Tenancy{}}
	var names []string
	for i := range tenancies {
		t := &tenancies[i]
		names = append(names, t.Tenant)
		who.ever[t.Device] = append(who.ever[t.Device], t)
		if t.Open() {
			who.now[t.Device] = append(who.now[t.Device], t)
		}
	}
	for i := range findings {
		names = append(names, findings[i].Tenants...)
	}
	slices.Sort(names)
	for i, name := range slices.Compact(names) {
		who.list = append(who.list, tenant{Name: name, Letter: letter(i), Color: i % topology.Colors})
	}
	who.count()
	return who
}

// count counts what the tenants have now.
func (w *tenants) count() {
	claims := map[string]bool{}
	for _, list := range w.now {
		for _, t := range list {
			who := w.named(t.Tenant)
			who.Functions++
			if key := t.Tenant + "\x00" + t.Claim; !claims[key] {
				claims[key] = true
				who.Claims++
			}
		}
	}
}

// maxNamed is how many tenants a legend names.
const maxNamed = 40

// holding returns the tenants that have functions now, and how many of them are
// too many to name.
func (w *tenants) holding() (list []tenant, more int) {
	for _, t := range w.list {
		switch {
		case t.Functions == 0:
		case len(list) < maxNamed:
			list = append(list, t)
		default:
			more++
		}
	}
	return list, more
}

// named returns the tenant of that name, which is in the list.
func (w *tenants) named(name string) *tenant {
	i, _ := slices.BinarySearchFunc(w.list, name, func(t tenant, name string) int { return strings.Compare(t.Name, name) })
	return &w.list[i]
}

// all returns the tenants of those names.
func (w *tenants) all(names []string) []tenant {
	list := make([]tenant, len(names))
	for i, name := range names {
		list[i] = *w.named(name)
	}
	return list
}

// holders returns who has which function, as the drawing names them.
func (w *tenants) holders() map[pci.Address][]topology.Holder {
	holders := map[pci.Address][]topology.Holder{}
	for a, list := range w.now {
		for _, t := range list {
			who := w.named(t.Tenant)
			holders[a] = append(holders[a], topology.Holder{Letter: who.Letter, Color: who.Color, Name: t.Name()})
		}
	}
	return holders
}

// namesOf returns who has any of the functions now, sorted, each once.
func (w *tenants) namesOf(addrs ...pci.Address) []string {
	var names []string
	for _, a := range addrs {
		for _, t := range w.now[a] {
			names = append(names, t.Tenant)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// letter counts as the columns of a spreadsheet do: A to Z, AA, AB.
func letter(i int) string {
	text := string(rune('A' + i%26))
	if i >= 26 {
		return letter(i/26-1) + text
	}
	return text
}

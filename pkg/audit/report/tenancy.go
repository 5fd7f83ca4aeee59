package report

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/audit"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// Tenancy is the time in which a claim had one function, by the journal or by the
// ledger.
type Tenancy struct {
	Device pci.Address
	// Tenant is its tenant, and Claim the tenant's claim: "namespace/name".
	Tenant string
	Claim  string
	// State is the state of a present tenancy, in a word; empty for a past one.
	State string
	// From and To are the beginning and the end of the tenancy. They are zero if unknown, and To is zero while the tenancy lasts.
	From, To time.Time
	// ResetBefore and ResetAfter are the resets before and after this tenant. They
	// are nil if unknown, or not done yet.
	ResetBefore, ResetAfter *Reset
	// Ledger is its entry in the ledger; nil if there is none.
	Ledger *facts.PastTenancy
	// Lost is set if the ledger has no end of the tenancy, but by the journal the claim does not have the function.
	Lost bool
}

// Reset is one reset of a function.
type Reset struct {
	// Method is the kernel's name: "flr", "bus".
	Method string
	// Proven is set if the function's registers were as they had been before a tenant had it. The tables say once that memory is not checked.
	Proven bool
	// Note has details: its duration, or why it is not proven.
	Note string
	// At is its time; zero if unknown.
	At time.Time
}

// Words returns the reset in a few words.
func (r *Reset) Words() string {
	if r == nil {
		return "not known"
	}
	text := r.Method + ", not proven"
	if r.Proven {
		text = r.Method + ", registers as before"
	}
	if r.Note != "" {
		text += " (" + r.Note + ")"
	}
	return text
}

// Open reports whether the tenancy goes on.
func (t *Tenancy) Open() bool { return t.To.IsZero() && !t.Lost }

// Ended reports whether the tenancy is known to have ended.
func (t *Tenancy) Ended() bool { return !t.To.IsZero() }

// Name returns the claim, and the tenant if the claim does not contain it.
func (t *Tenancy) Name() string {
	switch {
	case t.Claim == "":
		return t.Tenant
	case strings.HasPrefix(t.Claim, t.Tenant+"/"):
		return t.Claim
	}
	return t.Tenant + ": " + t.Claim
}

// TenanciesNow returns the present tenancies, from the node's journal.
func TenanciesNow(n *facts.Node) []Tenancy {
	list := make([]Tenancy, 0, len(n.Tenancies))
	for i := range n.Tenancies {
		held := &n.Tenancies[i]
		t := Tenancy{Device: held.Address, Tenant: held.Tenant(), Claim: held.Claim(), State: string(held.Record.State), From: since(held.Record)}
		reset := newReset(held.Record, held.Address)
		switch held.Record.State {
		case journal.Preparing, journal.Prepared:
			t.ResetBefore = reset
		default:
			t.ResetAfter = reset
		}
		list = append(list, t)
	}
	return list
}

// since returns when a sandbox got the functions, or when the record came to its
// state.
func since(r *journal.Record) time.Time {
	text := r.Since
	if r.Sandbox != nil {
		text = r.Sandbox.Since
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}
	}
	return at.UTC()
}

// newReset returns the last reset in the record that touched the function, or nil if
// there is none.
func newReset(r *journal.Record, a pci.Address) *Reset {
	var last *Reset
	for i := range r.Proofs {
		p := &r.Proofs[i]
		before, after := fingerprint(r.Baseline, a), fingerprint(p.After, a)
		if after == nil {
			continue
		}
		if before == nil {
			// Without a baseline, the proof's own fingerprint from before the reset
			// is compared.
			before = fingerprint(p.Before, a)
		}
		last = &Reset{Method: p.Method, Note: fmt.Sprintf("%d ms", p.Milliseconds)}
		if before == nil {
			last.Note = "nothing to compare with"
		} else if differs := isolation.Compare(*before, *after); differs != "" {
			last.Note = differs
		} else {
			last.Proven = true
		}
	}
	return last
}

func fingerprint(list []isolation.Fingerprint, a pci.Address) *isolation.Fingerprint {
	for i := range list {
		if list[i].Address == a {
			return &list[i]
		}
	}
	return nil
}

// tenant is a present or past tenant, with its signs on the page.
type tenant struct {
	Name   string
	Letter string
	// Color is one of a few colors, so tenants may share it. Letters and names distinguish tenants.
	Color int
	// Functions and Claims count those that it has now.
	Functions, Claims int
}

// tenants has all tenants on the page.
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
		who.list = append(who.list, tenant{Name: name, Letter: letter(i), Color: i % audit.Colors})
	}
	who.count()
	return who
}

// count counts the functions and claims that the tenants have now.
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

// maxNamed is the number of tenants that a legend names.
const maxNamed = 40

// holding returns the tenants that have functions now, and the number of those that
// are too many to name.
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

// holders returns the tenants of each function, for the drawing.
func (w *tenants) holders() map[pci.Address][]audit.Holder {
	holders := map[pci.Address][]audit.Holder{}
	for a, list := range w.now {
		for _, t := range list {
			who := w.named(t.Tenant)
			holders[a] = append(holders[a], audit.Holder{Letter: who.Letter, Color: who.Color, Name: t.Name()})
		}
	}
	return holders
}

// names returns the tenants that have any of the functions now, sorted, each once.
func (w *tenants) names(addrs ...pci.Address) []string {
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

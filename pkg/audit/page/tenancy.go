package page

import (
	"fmt"
	"strings"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger/history"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// Tenancy is the time in which a claim had one function, by the journal or by the
// ledger.
type Tenancy struct {
	Device pci.Address
	// Tenant is who had it, and Claim their claim: "namespace/name".
	Tenant string
	Claim  string
	// State says how far a tenancy of now has come, in a word; empty for a past one.
	State string
	// From and To are when it began and ended: zero where that is not known, and To
	// while it goes on.
	From, To time.Time
	// ResetBefore and ResetAfter are how the function was cleaned for this tenant
	// and after it; nil where that is not known, or not yet so.
	ResetBefore, ResetAfter *Reset
	// Ledger is what the ledger says of it; nil where that says nothing.
	Ledger *history.Tenancy
	// Lost is set where the ledger has no end of it, and the journal says that the
	// claim does not have the function.
	Lost bool
}

// Reset is one reset of a function.
type Reset struct {
	// Method is the kernel's word: "flr", "bus".
	Method string
	// Proven is set where the function's registers were as they were before a
	// tenant had it.
	Proven bool
	// Note says more: how long it took, or why it is not proven.
	Note string
	// At is when it was; zero where that is not known.
	At time.Time
}

// Words returns the reset in a few words.
func (r *Reset) Words() string {
	if r == nil {
		return "not known"
	}
	text := r.Method + ", not proven clean"
	if r.Proven {
		text = r.Method + ", proven clean"
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

// Name returns the claim, and the tenant where that is not in it.
func (t *Tenancy) Name() string {
	switch {
	case t.Claim == "":
		return t.Tenant
	case strings.HasPrefix(t.Claim, t.Tenant+"/"):
		return t.Claim
	}
	return t.Tenant + ": " + t.Claim
}

// TenanciesNow returns the tenancies that the node's journal has: those of now.
func TenanciesNow(n *facts.Node) []Tenancy {
	list := make([]Tenancy, 0, len(n.Tenancies))
	for i := range n.Tenancies {
		held := &n.Tenancies[i]
		t := Tenancy{Device: held.Address, Tenant: held.Tenant(), Claim: held.Claim(), State: string(held.Record.State), From: since(held.Record)}
		reset := resetOf(held.Record, held.Address)
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

// resetOf returns the last reset in the record that touched the function, nil
// where there is none.
func resetOf(r *journal.Record, a pci.Address) *Reset {
	var last *Reset
	for i := range r.Proofs {
		p := &r.Proofs[i]
		before, after := fingerprint(r.Baseline, a), fingerprint(p.After, a)
		if after == nil {
			continue
		}
		if before == nil {
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

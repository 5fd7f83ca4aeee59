package page

import (
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/cli/terminal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/ledger/history"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// Ledger is the node's ledger as a page tells of it.
type Ledger struct {
	// Missing says why nothing of it can be told; empty where it was read.
	Missing string
	// Verification says how far it can be believed. What one that is not sound says is
	// shown all the same, and marked.
	Verification history.Verification
	// Refusals are the claims that did not get their devices, in order.
	Refusals []history.Refusal
}

// ledgerView is the ledger as templates have it.
type ledgerView struct {
	Missing      string
	Verification verification
	Refusals     refusalTable
}

// Unsound reports whether there is a ledger that does not verify.
func (v *ledgerView) Unsound() bool { return v != nil && v.Missing == "" && !v.Verification.Sound }

func ledgerViewOf(l *Ledger) *ledgerView {
	if l == nil {
		return nil
	}
	return &ledgerView{Missing: terminal.Shorten(l.Missing, maxWords), Verification: verificationOf(l.Verification), Refusals: refusalsOf(l.Refusals)}
}

// verification is what a look at the ledger gave, with no more problems than a reader
// can use.
type verification struct {
	history.Verification
	// Count is how many events are proven, and Left how many problems are left out.
	Count, Left int
}

const maxProblems = 10

func verificationOf(s history.Verification) verification {
	v := verification{Verification: s, Count: int(s.Events), Left: max(len(s.Problems)-maxProblems, 0)}
	v.Problems = nil
	for _, p := range s.Problems[:min(len(s.Problems), maxProblems)] {
		v.Problems = append(v.Problems, terminal.Shorten(p, maxWords))
	}
	return v
}

// refusalTable is the latest refusals, the last first.
type refusalTable struct {
	Rows []history.Refusal
	Left int
}

const maxRefusals = 50

func refusalsOf(list []history.Refusal) refusalTable {
	t := refusalTable{Left: max(len(list)-maxRefusals, 0)}
	t.Rows = slices.Clone(list[t.Left:])
	slices.Reverse(t.Rows)
	for i := range t.Rows {
		r := &t.Rows[i]
		r.Reason, r.Codes = terminal.Shorten(r.Reason, maxWords), slices.Clone(r.Codes[:min(len(r.Codes), maxDevices)])
		for j := range r.Codes {
			r.Codes[j] = terminal.Shorten(r.Codes[j], maxWords)
		}
	}
	return t
}

// claimName is [history.ClaimName] for a table.
func claimName(c ledger.Claim) string { return terminal.Shorten(history.ClaimName(&c), maxWords) }

// addressesOf returns the first of the devices' addresses.
func addressesOf(devices []ledger.Device) []pci.Address {
	list := make([]pci.Address, min(len(devices), maxDevices))
	for i := range list {
		list[i] = devices[i].Address
	}
	return list
}

// Package evidence answers for a pod, a claim, a function or a moment who had which
// function, in which VM, how isolated, and cleaned by what before and after: for
// people, for machines, and as a bundle that proves itself offline.
package evidence

import (
	"slices"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/ledger/history"
)

// Document is the answer to one question.
type Document struct {
	// Question is what was asked, in words: "pod t1/train".
	Question string `json:"question"`
	// Node is whose ledger it is.
	Node string `json:"node,omitempty"`
	// Tenancies are in the order in which they began.
	Tenancies []*history.Tenancy `json:"tenancies"`
	// Neighbours are other tenants' tenancies at the same time, the nearest first.
	Neighbours []history.Neighbour `json:"neighbours"`
	Refusals   []history.Refusal   `json:"refusals"`
	// Ledger says how far the ledger can be believed.
	Ledger history.Verification `json:"ledger"`
}

// About returns the answer to a question: the tenancies that were asked for, who
// was near them, and what was refused to the same claims.
func About(question string, h *history.History, tenancies []*history.Tenancy, ledger history.Verification) *Document {
	return answer(question, h, tenancies, OtherTenants(h.Neighbours(tenancies)), ledger)
}

// At returns the answer to a question about a moment. Everybody of that moment is among the tenancies: who came
// later, or was gone, was near nobody then. Nor had been refused what was refused later.
func At(question string, h *history.History, when time.Time, ledger history.Verification) *Document {
	d := answer(question, h, h.At(when), nil, ledger)
	d.Refusals = slices.DeleteFunc(d.Refusals, func(r history.Refusal) bool { return r.Time.After(when) })
	return d
}

func answer(question string, h *history.History, tenancies []*history.Tenancy, near []history.Neighbour, ledger history.Verification) *Document {
	d := &Document{Question: question, Tenancies: list(tenancies), Neighbours: list(near), Refusals: []history.Refusal{}, Ledger: ledger}
	for _, t := range tenancies {
		d.Node = t.Node
	}
	for _, r := range h.Refusals {
		if slices.ContainsFunc(tenancies, func(t *history.Tenancy) bool { return t.Claim.UID == r.Claim.UID }) {
			d.Refusals = append(d.Refusals, r)
		}
	}
	d.Ledger.Problems, d.Ledger.Doubts = list(ledger.Problems), list(ledger.Doubts)
	return d
}

// OtherTenants leaves out what is the same tenant's.
func OtherTenants(near []history.Neighbour) []history.Neighbour {
	return slices.DeleteFunc(slices.Clone(near), func(n history.Neighbour) bool { return n.Mine.Tenant() == n.Other.Tenant() })
}

// list turns nil into an empty list.
func list[T any](items []T) []T {
	if items == nil {
		return []T{}
	}
	return items
}

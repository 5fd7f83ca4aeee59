package page

import (
	"io"
	"slices"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/ledger/history"
)

// Answer is what a ledger says to one question: who had what.
type Answer struct {
	// Question is what was asked, and Verdict the answer in a line.
	Question, Verdict string
	// Node is whose ledger it is.
	Node         string
	Tenancies    []*history.Tenancy
	Neighbours   []history.Neighbour
	Refusals     []history.Refusal
	Verification history.Verification
}

// state is the answer's sign: it fails where the ledger is not sound, and is in doubt
// where a function came back without a proof.
func (a *Answer) state() finding.State {
	doubtful := func(t *history.Tenancy) bool { return t.Unproven || t.Quarantined != "" || len(t.Doubts) > 0 }
	switch {
	case !a.Verification.Sound:
		return finding.Fail
	case len(a.Tenancies) == 0:
		return finding.NotApplicable
	case slices.ContainsFunc(a.Tenancies, doubtful):
		return finding.Unknown
	}
	return finding.Pass
}

// WriteAnswer writes the answer as a page in the style of [Write]'s. It has no
// script.
func WriteAnswer(w io.Writer, a *Answer) error {
	v := newAnswerView(a)
	f := &frame{Title: a.Question, About: "Who had which device", Parts: v.parts(), Made: "by the node’s ledger; times are UTC", Body: v}
	return f.write(w, answerTemplate, functions(nil))
}

// answerView is the page's body as its template has it.
type answerView struct {
	Question, Verdict, Node string
	State                   finding.State
	Verification            verification
	Timeline                *timeline
	Tenancies               []tenancyOf
	Neighbours              []history.Neighbour
	Refusals                refusalTable
}

func newAnswerView(a *Answer) *answerView {
	v := &answerView{
		Question: a.Question, Verdict: a.Verdict, Node: a.Node, State: a.state(),
		Verification: verificationOf(a.Verification), Neighbours: a.Neighbours, Refusals: refusalsOf(a.Refusals),
	}
	list := make([]Tenancy, len(a.Tenancies))
	for i, t := range a.Tenancies {
		list[i] = TenancyOf(t)
	}
	who := newTenants(list, nil)
	v.Timeline = timelineOf(sortedTenancies(list), time.Time{}, who)
	for i := range list {
		v.Tenancies = append(v.Tenancies, tenancyOf{&list[i], who.named(list[i].Tenant)})
	}
	return v
}

// parts are what the page's head leads to.
func (v *answerView) parts() []link {
	var list []link
	for _, part := range []struct {
		there bool
		link
	}{
		{v.Timeline != nil, link{"timeline", "Timeline"}},
		{len(v.Tenancies) > 0, link{"tenancies", "Tenancies"}},
		{len(v.Neighbours) > 0, link{"neighbours", "Neighbours"}},
		{len(v.Refusals.Rows) > 0, link{"refusals", "Refused"}},
		{true, link{"ledger", "The ledger"}},
	} {
		if part.there {
			list = append(list, part.link)
		}
	}
	return list
}

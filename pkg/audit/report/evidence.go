package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
)

// Evidence is the answer to one question about a pod, a claim, a function or a moment: which claim had which function, in
// which VM, how isolated it was, and how it was cleaned before and after.
type Evidence struct {
	// Question is the question in words: "pod t1/train".
	Question string `json:"question"`
	// Node is the node whose ledger answers.
	Node string `json:"node,omitempty"`
	// Tenancies are the requested tenancies, in the order in which they began.
	Tenancies []*facts.PastTenancy `json:"tenancies"`
	// Neighbors are other tenants' tenancies at the same time, the nearest first.
	Neighbors []facts.Neighbor `json:"neighbours"`
	Refusals  []facts.Refusal  `json:"refusals"`
	// Ledger says how far the ledger can be trusted.
	Ledger facts.Verification `json:"ledger"`
}

// About returns the answer to a question: the requested tenancies, the tenancies near them, and the refusals of the same
// claims.
func About(question string, h *facts.History, tenancies []*facts.PastTenancy, ledger facts.Verification) *Evidence {
	return answer(question, h, tenancies, otherTenants(h.Neighbors(tenancies)), ledger)
}

// At returns the answer to a question about tenancies of a moment. Neighbors that began after the moment or had ended before it are
// left out, and so are later refusals.
func At(question string, h *facts.History, tenancies []*facts.PastTenancy, when time.Time, ledger facts.Verification) *Evidence {
	d := answer(question, h, tenancies, otherTenants(h.NeighborsAt(tenancies, when)), ledger)
	d.Refusals = slices.DeleteFunc(d.Refusals, func(r facts.Refusal) bool { return r.Time.After(when) })
	return d
}

func answer(question string, h *facts.History, tenancies []*facts.PastTenancy, near []facts.Neighbor, ledger facts.Verification) *Evidence {
	d := &Evidence{Question: question, Tenancies: list(tenancies), Neighbors: list(near), Refusals: []facts.Refusal{}, Ledger: ledger}
	claims := map[string]bool{}
	for _, t := range tenancies {
		// A ledger is one node's, so that all tenancies name the same.
		d.Node = t.Node
		claims[t.Claim.UID] = true
	}
	for _, r := range h.Refusals {
		if claims[r.Claim.UID] {
			d.Refusals = append(d.Refusals, r)
		}
	}
	d.Ledger.Problems, d.Ledger.Doubts = list(ledger.Problems), list(ledger.Doubts)
	return d
}

// otherTenants leaves out neighbors of the same tenant.
func otherTenants(near []facts.Neighbor) []facts.Neighbor {
	return slices.DeleteFunc(slices.Clone(near), func(n facts.Neighbor) bool { return n.Mine.Tenant() == n.Other.Tenant() })
}

// list turns nil into an empty list.
func list[T any](items []T) []T {
	if items == nil {
		return []T{}
	}
	return items
}

// writeHTML writes one self-contained page.
func (d *Evidence) writeHTML(w io.Writer) error {
	return WriteAnswer(w, &Answer{
		Question: d.Question, Verdict: d.verdict(), Node: d.Node, Tenancies: d.Tenancies, Neighbors: d.Neighbors,
		Refusals: d.Refusals, Verification: d.Ledger,
	})
}

// EvidenceFormats returns the formats that [Evidence.Write] knows, the default first.
func EvidenceFormats() []string { return []string{"text", "json", "yaml", "html"} }

// Write writes the document in the format.
func (d *Evidence) Write(w io.Writer, format string) error {
	if done, err := output.Document(w, format, "evidence", d); done {
		return err
	}
	switch format {
	case "text":
		return d.writeText(w)
	case "html":
		return d.writeHTML(w)
	}
	return fmt.Errorf("no such format: %s", format)
}

// evidenceText collects lines of text.
type evidenceText struct{ out strings.Builder }

// line adds a line. Text from the ledger can't begin another line, and has no effect on a terminal.
func (p *evidenceText) line(format string, args ...any) {
	p.out.WriteString(output.Visible(fmt.Sprintf(format, args...)) + "\n")
}

func (d *Evidence) writeText(w io.Writer) error {
	var p evidenceText
	p.line("%s: %s", d.Question, d.verdict())
	for _, t := range d.Tenancies {
		p.line("")
		p.tenancy(t)
	}
	p.neighbors(d.Neighbors)
	for i := range d.Refusals {
		r := &d.Refusals[i]
		p.line("")
		p.line("%s  refused      claim %s: %s", facts.Stamp(r.Time), facts.ClaimName(&r.Claim), r.Reason)
	}
	p.ledger(&d.Ledger)
	_, err := io.WriteString(w, p.out.String())
	if err != nil {
		return fmt.Errorf("write evidence: %w", err)
	}
	return nil
}

// verdict summarizes the evidence in one line.
func (d *Evidence) verdict() string {
	switch {
	case len(d.Tenancies) > 0:
	case d.Ledger.Sound:
		return "the ledger knows of no function"
	default:
		return "what could be read of the ledger knows of no function"
	}
	ends, unproven := map[facts.End]int{}, 0
	for _, t := range d.Tenancies {
		ends[t.End()]++
		if t.To != nil && !t.Undone && len(t.Stays) > 0 && !t.After.Proven() {
			unproven++
		}
	}
	text := fmt.Sprintf("%s on node %s, %d held now", output.Count(len(d.Tenancies), "tenancy", "tenancies"), d.Node, ends[facts.Held])
	if n := ends[facts.Quarantined]; n > 0 {
		text += fmt.Sprintf(", %d in quarantine", n)
	}
	if unproven > 0 {
		text += fmt.Sprintf(", %d given back without a proven reset", unproven)
	}
	if n := len(d.Neighbors); n > 0 {
		text += ", near " + output.Count(n, "tenancy of another tenant", "tenancies of other tenants")
	}
	return text
}

func (p *evidenceText) tenancy(t *facts.PastTenancy) {
	pods := ""
	if names := t.PodNames(); len(names) > 0 {
		pods = " for pod " + strings.Join(names, ", ")
	}
	p.line("%s  claim %s (uid %s)%s", t.Device.Address, facts.ClaimName(&t.Claim), t.Claim.UID, pods)
	p.line("  %s  before       %s", blank, t.BeforeWords())
	if s := t.Sanitized; s != nil {
		p.line("  %s  sanitized    %s", facts.Stamp(s.Time), s.Words())
	}
	p.line("  %s  taken        %s", facts.Stamp(t.From), t.IsolationWords())
	if words := t.ProvidedWords(); words != "" {
		p.line("  %s  set          %s", blank, words)
	}
	p.moments(t)
	p.end(t)
	for _, doubt := range t.Doubts {
		p.line("  %s  doubt        %s", blank, doubt)
	}
	p.line("  %s  by events    %s", blank, strings.Trim(fmt.Sprint(t.Events), "[]"))
}

func (p *evidenceText) end(t *facts.PastTenancy) {
	when := blank
	if t.To != nil {
		when = facts.Stamp(*t.To)
	}
	switch end := t.End(); end {
	case facts.Quarantined:
		p.line("  %s  quarantined  until now", blank)
	case facts.Held:
		p.line("  %s  held         until now", blank)
	case facts.Undone:
		p.line("  %s  undone       no VM had it", when)
	case facts.Unproven:
		p.line("  %s  given back   without a proven reset; it is reset before the next tenant", when)
	case facts.GivenBack:
		p.line("  %s  given back", when)
	}
}

// moment is a line of a tenancy: what happened when.
type moment struct {
	when        time.Time
	word, words string
}

// moments lists the tenancy's VMs, its quarantines with the orders to end them, and its last reset, in order of time.
func (p *evidenceText) moments(t *facts.PastTenancy) {
	var all []moment
	for i := range t.Stays {
		s := &t.Stays[i]
		all = append(all, moment{s.From, "in a VM", s.Words()})
		if s.To != nil {
			all = append(all, moment{*s.To, "out of it", ""})
		}
	}
	if t.After != nil {
		all = append(all, moment{t.After.Time, "reset", t.After.Words()})
	}
	for i := range t.Quarantines {
		q := &t.Quarantines[i]
		all = append(all, moment{q.From, "quarantined", q.Reason})
		for j := range q.Orders {
			o := &q.Orders[j]
			all = append(all, moment{o.Time, "clear order", o.Words()})
			if o.FailedAt != nil {
				all = append(all, moment{*o.FailedAt, "failed", o.Failed})
			}
		}
		if q.To != nil {
			all = append(all, moment{*q.To, "cleared", "the quarantine ended"})
		}
	}
	slices.SortStableFunc(all, func(a, b moment) int { return a.when.Compare(b.when) })
	for _, m := range all {
		p.line("  %s  %-11s  %s", facts.Stamp(m.when), m.word, m.words)
	}
}

// blank is as wide as a stamp.
const blank = "                    "

func (p *evidenceText) neighbors(near []facts.Neighbor) {
	if len(near) == 0 {
		return
	}
	p.line("")
	p.line("Near it at the same time:")
	for i := range near {
		n := &near[i]
		until := "now"
		if n.To != nil {
			until = facts.Stamp(*n.To)
		}
		p.line("  %s to %s  %s (claim %s) shares %s with %s", facts.Stamp(n.From), until, n.Other.Device.Address,
			facts.ClaimName(&n.Other.Claim), n.Relation, n.Mine.Device.Address)
	}
}

func (p *evidenceText) ledger(s *facts.Verification) {
	state := "chain, tree and signatures are sound"
	if !s.Sound {
		state = "NOT sound"
	}
	p.line("")
	p.line("Ledger: %s, %s", output.Count(int(s.Events), "event"), state)
	for _, problem := range s.Problems {
		p.line("  problem: %s", problem)
	}
	for _, doubt := range s.Doubts {
		p.line("  %s", doubt)
	}
}

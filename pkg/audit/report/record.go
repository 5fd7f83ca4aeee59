package report

import (
	"cmp"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// Tenancies joins the present tenancies of the node's journal with the past ones of its ledger. They are matched by the claim's
// UID, because the ledger's names may be pseudonyms. A tenancy that has no end in the ledger, and that the journal does not have,
// is not present: see [Tenancy.Lost].
func Tenancies(n *facts.Node, h *facts.History) []Tenancy {
	type key struct {
		device pci.Address
		claim  string
	}
	list, at := TenanciesNow(n), map[key]int{}
	for i := range n.Tenancies {
		at[key{n.Tenancies[i].Address, n.Tenancies[i].Record.Plan.Claim.UID}] = i
	}
	for _, past := range h.Tenancies {
		t := NewTenancy(past)
		i, now := at[key{past.Device.Address, past.Claim.UID}]
		switch {
		case past.To != nil:
			list = append(list, t)
		case now:
			t.Tenant, t.Claim, t.State = list[i].Tenant, list[i].Claim, list[i].State
			list[i] = t
		default:
			t.Lost = true
			list = append(list, t)
		}
	}
	return list
}

// maxWords bounds a text of the ledger in a table, in characters.
const maxWords = 300

// NewTenancy returns a tenancy of the ledger for pages.
func NewTenancy(past *facts.PastTenancy) Tenancy {
	t := Tenancy{
		Device: past.Device.Address, Tenant: output.ShortenWords(past.Tenant(), maxWords), Claim: output.Shorten(facts.ClaimName(&past.Claim), maxWords),
		From: past.From, ResetBefore: resetBy(past.Before), ResetAfter: resetBy(past.After), Ledger: past,
	}
	if past.To != nil {
		t.To = *past.To
	}
	return t
}

func resetBy(c *facts.Cleaning) *Reset {
	if c == nil {
		return nil
	}
	r := &Reset{Method: output.ShortenWords(c.Proof.Method, maxWords), Proven: c.Proven(), At: c.Time}
	if !r.Proven {
		r.Note = output.ShortenWords(c.Reason, maxWords)
	}
	return r
}

// mark is a highlighted word beside a tenancy.
type mark struct {
	State finding.State
	Text  string
}

// maxDoubts is the number of doubts of one tenancy in a table.
const maxDoubts = 3

// Marks are the faults and doubts of the tenancy, by the ledger.
func (t *Tenancy) Marks() []mark {
	past := t.Ledger
	if past == nil {
		return nil
	}
	var list []mark
	switch {
	case t.Lost:
		list = append(list, mark{finding.Unknown, "the ledger has no end of it, and the journal does not have it"})
	case past.Quarantined != "":
		list = append(list, mark{finding.Fail, output.ShortenWords("quarantined: "+past.Quarantined, maxWords)})
	case past.Undone:
		list = append(list, mark{finding.NotApplicable, "no VM had it"})
	case past.Unproven:
		list = append(list, mark{finding.Unknown, "given back without a proven reset"})
	}
	if s := past.Sanitized; s != nil {
		state := finding.Pass
		if s.Result != ledger.OK {
			state = finding.Fail
		}
		list = append(list, mark{state, output.ShortenWords("sanitized before: "+s.Words(), maxWords)})
	}
	for _, doubt := range past.Doubts[:min(len(past.Doubts), maxDoubts)] {
		list = append(list, mark{finding.Unknown, output.ShortenWords(doubt, maxWords)})
	}
	return list
}

// Limits of a page's past tenancies: for one function, and for all together, which depends on the number of functions. With these
// limits, the page of a large node is small enough for a mail.
const (
	maxPast              = 10
	room                 = 2600
	muchRoom, littleRoom = 600, 50
)

// record has the tenancies that a page shows.
type record struct {
	shown []Tenancy
	// left is the number of past tenancies of a function that are left out.
	left map[pci.Address]int
	// doubt says why the past tenancies can't be trusted. It is empty if they can.
	doubt string
}

// latest returns all present tenancies, and the latest past ones, for a page with a number of functions.
func latest(all []Tenancy, functions int) record {
	r := record{left: map[pci.Address]int{}}
	most := min(max(room-functions, littleRoom), muchRoom)
	var past []Tenancy
	for i := range all {
		if all[i].Open() {
			r.shown = append(r.shown, all[i])
		} else {
			past = append(past, all[i])
		}
	}
	slices.SortStableFunc(past, func(a, b Tenancy) int { return b.From.Compare(a.From) })
	kept, have := 0, map[pci.Address]int{}
	for i := range past {
		a := past[i].Device
		if have[a] == maxPast || kept == most {
			r.left[a]++
			continue
		}
		have[a]++
		kept++
		r.shown = append(r.shown, past[i])
	}
	slices.SortStableFunc(r.shown, func(a, b Tenancy) int {
		return cmp.Or(a.Device.Compare(b.Device), a.From.Compare(b.From))
	})
	return r
}

// namedTenancy is a tenancy and its tenant.
type namedTenancy struct {
	*Tenancy
	Who *tenant
}

// tenancyTable is a table of tenancies.
type tenancyTable struct {
	Caption string
	Rows    []namedTenancy
	// Left is the number of those left out, and Where is the place that has them.
	Left  int
	Where string
}

// maxTenancies is the number of rows in the table of all functions.
const maxTenancies = 200

// newTenancyTable returns the table of all functions.
func newTenancyTable(r record, who *tenants) tenancyTable {
	t := tenancyTable{Where: "see the device, or ask `kata-vfio-audit who --device ADDRESS --history`"}
	for i := range r.shown {
		if len(t.Rows) == maxTenancies {
			t.Left = len(r.shown) - i
			break
		}
		t.Rows = append(t.Rows, namedTenancy{&r.shown[i], who.named(r.shown[i].Tenant)})
	}
	for _, n := range r.left {
		t.Left += n
	}
	return t
}

// newHistory returns the past tenancies of some functions, the first of which is the subject; nil without any.
func newHistory(r record, who *tenants, addrs ...pci.Address) *tenancyTable {
	t := &tenancyTable{Caption: "Tenancies on record" + r.doubt, Where: "`kata-vfio-audit who --device " + addrs[0].String() + " --history`"}
	for _, a := range addrs {
		t.Left += r.left[a]
		if !slices.ContainsFunc(who.ever[a], func(held *Tenancy) bool { return !held.Open() }) {
			continue
		}
		for _, held := range slices.Backward(who.ever[a]) {
			t.Rows = append(t.Rows, namedTenancy{held, who.named(held.Tenant)})
		}
	}
	if len(t.Rows) == 0 && t.Left == 0 {
		return nil
	}
	return t
}

// Ledger is the node's ledger for a page.
type Ledger struct {
	// Missing says why the ledger is not shown; empty if it was read.
	Missing string
	// Verification says how far the ledger can be trusted. If the ledger is not sound, its content is still shown, but marked.
	Verification facts.Verification
	// Refusals are the claims that did not get their devices, in order.
	Refusals []facts.Refusal
}

// ledgerView is the input of templates about the ledger.
type ledgerView struct {
	Missing      string
	Verification verification
	Refusals     refusalTable
}

// Unsound reports whether there is a ledger that does not verify.
func (v *ledgerView) Unsound() bool { return v != nil && v.Missing == "" && !v.Verification.Sound }

func newLedgerView(l *Ledger) *ledgerView {
	if l == nil {
		return nil
	}
	return &ledgerView{Missing: output.ShortenWords(l.Missing, maxWords), Verification: newVerification(l.Verification), Refusals: newRefusalTable(l.Refusals)}
}

// verification is the result of the ledger's verification, with as many problems as a reader can use.
type verification struct {
	facts.Verification
	// Count is the number of proven events, and Left the number of problems that are left out.
	Count, Left int
}

const maxProblems = 10

func newVerification(s facts.Verification) verification {
	v := verification{Verification: s, Count: int(s.Events), Left: max(len(s.Problems)-maxProblems, 0)}
	v.Problems = nil
	for _, p := range s.Problems[:min(len(s.Problems), maxProblems)] {
		v.Problems = append(v.Problems, output.ShortenWords(p, maxWords))
	}
	return v
}

// refusalTable is the latest refusals, the last first.
type refusalTable struct {
	Rows []facts.Refusal
	Left int
}

const maxRefusals = 50

func newRefusalTable(list []facts.Refusal) refusalTable {
	t := refusalTable{Left: max(len(list)-maxRefusals, 0)}
	t.Rows = slices.Clone(list[t.Left:])
	slices.Reverse(t.Rows)
	for i := range t.Rows {
		r := &t.Rows[i]
		r.Reason, r.Codes = output.ShortenWords(r.Reason, maxWords), slices.Clone(r.Codes[:min(len(r.Codes), maxDevices)])
		for j := range r.Codes {
			r.Codes[j] = output.ShortenWords(r.Codes[j], maxWords)
		}
	}
	return t
}

// claimName is [facts.ClaimName] for a table.
func claimName(c ledger.Claim) string { return output.ShortenWords(facts.ClaimName(&c), maxWords) }

// listAddresses returns the first of the devices' addresses.
func listAddresses(devices []ledger.Device) []pci.Address {
	list := make([]pci.Address, min(len(devices), maxDevices))
	for i := range list {
		list[i] = devices[i].Address
	}
	return list
}

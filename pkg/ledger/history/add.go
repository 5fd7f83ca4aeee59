package history

import (
	"fmt"
	"slices"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// Add takes in the next event of the ledger. Events that say nothing of
// tenancies are passed over.
func (h *History) Add(e *ledger.Event) {
	if h.open == nil {
		h.open, h.claims = map[pci.Address][]*Tenancy{}, map[string][]*Tenancy{}
		h.had, h.resets = map[pci.Address]bool{}, map[pci.Address]*Cleaning{}
	}
	switch e.Type {
	case ledger.Prepare:
		h.prepare(e)
	case ledger.Refusal:
		h.refuse(e)
	case ledger.Reset:
		h.reset(e)
	case ledger.Unprepare:
		h.end(e)
	case ledger.Bind, ledger.Policy:
		h.each(e, func(*Tenancy) {})
	case ledger.Open:
		h.each(e, func(t *Tenancy) { t.enter(e) })
	case ledger.Close:
		h.each(e, func(t *Tenancy) { t.leave(e.Time) })
	case ledger.Quarantine:
		h.each(e, func(t *Tenancy) { t.Quarantined = e.Reason })
	case ledger.Release:
		h.each(e, func(t *Tenancy) { t.Quarantined = "" })
	case ledger.Start, ledger.Clear, ledger.Drain, ledger.Undrain, ledger.Audit, ledger.Torn, ledger.Retention:
	}
}

// prepare begins the tenancies of a claim. A second one of a claim that has not
// ended is a plugin's that began again after a crash.
func (h *History) prepare(e *ledger.Event) {
	if e.Claim == nil || e.Result != ledger.OK {
		return
	}
	for i := range e.Devices {
		d := e.Devices[i]
		if t := h.of(d.Address, e.Claim.UID); t != nil {
			t.note(e)
			continue
		}
		t := &Tenancy{
			Device: d, Node: e.Node, Claim: *e.Claim, Pods: e.Pods, From: e.Time, Stays: []Stay{},
			Before: h.resets[d.Address], First: !h.had[d.Address],
		}
		t.note(e)
		for _, other := range h.open[d.Address] {
			t.Doubts = append(t.Doubts, fmt.Sprintf("claim %s had the function and did not end before, by the ledger", other.Claim.UID))
		}
		h.had[d.Address] = true
		h.open[d.Address] = append(h.open[d.Address], t)
		h.claims[t.Claim.UID] = append(h.claims[t.Claim.UID], t)
		h.Tenancies = append(h.Tenancies, t)
	}
}

func (h *History) refuse(e *ledger.Event) {
	if e.Claim != nil {
		h.Refusals = append(h.Refusals, Refusal{Time: e.Time, Event: e.Seq, Claim: *e.Claim, Devices: e.Devices, Codes: e.Codes, Reason: e.Reason})
	}
}

// reset notes a reset of each function that it touched. It is the tenancy's own
// where the tenancy goes on.
func (h *History) reset(e *ledger.Event) {
	if e.Reset == nil {
		return
	}
	c := &Cleaning{Time: e.Time, Event: e.Seq, Result: e.Result, Proof: *e.Reset, Reason: e.Reason}
	touched := slices.Clone(e.Reset.Set)
	for i := range e.Devices {
		touched = append(touched, e.Devices[i].Address)
	}
	slices.SortFunc(touched, pci.Address.Compare)
	for _, a := range slices.Compact(touched) {
		h.resets[a] = c
		for _, t := range h.open[a] {
			t.cleaned(e, c)
		}
	}
}

// cleaned notes a reset during the tenancy: on its way in, or after a sandbox.
func (t *Tenancy) cleaned(e *ledger.Event, c *Cleaning) {
	if e.Claim != nil && e.Claim.UID != t.Claim.UID {
		t.Doubts = append(t.Doubts, fmt.Sprintf("event %d resets the function for another claim", e.Seq))
	}
	t.note(e)
	if len(t.Stays) == 0 {
		t.Before = c
		return
	}
	t.After = c
}

// end ends a claim's tenancies.
func (h *History) end(e *ledger.Event) {
	for _, t := range h.concerned(e) {
		t.note(e)
		t.To = new(e.Time)
		t.Unproven = slices.Contains(e.Codes, ledger.CodeUnproven)
		t.Undone = slices.Contains(e.Codes, ledger.CodeUndone)
		t.leave(e.Time)
		is := func(o *Tenancy) bool { return o == t }
		h.open[t.Device.Address] = slices.DeleteFunc(h.open[t.Device.Address], is)
		if h.claims[t.Claim.UID] = slices.DeleteFunc(h.claims[t.Claim.UID], is); len(h.claims[t.Claim.UID]) == 0 {
			delete(h.claims, t.Claim.UID)
		}
	}
}

// each notes what happened during the tenancies that the event is about.
func (h *History) each(e *ledger.Event, change func(*Tenancy)) {
	for _, t := range h.concerned(e) {
		t.note(e)
		change(t)
	}
}

// concerned returns the tenancies of the event's claim that go on: those of its
// devices, or all where it names none.
func (h *History) concerned(e *ledger.Event) []*Tenancy {
	if e.Claim == nil {
		return nil
	}
	var found []*Tenancy
	for _, t := range h.claims[e.Claim.UID] {
		if len(e.Devices) == 0 || e.Concerns(t.Device.Address) {
			found = append(found, t)
		}
	}
	return found
}

func (h *History) of(a pci.Address, claim string) *Tenancy {
	for _, t := range h.open[a] {
		if t.Claim.UID == claim {
			return t
		}
	}
	return nil
}

// enter begins a stay, or completes the last one with what became known.
func (t *Tenancy) enter(e *ledger.Event) {
	if e.VM == nil || e.Result != ledger.OK {
		return
	}
	if n := len(t.Stays); n > 0 && t.Stays[n-1].VM.Sandbox == e.VM.Sandbox && t.Stays[n-1].To == nil {
		t.Stays[n-1].VM = *e.VM
		return
	}
	if n := len(t.Stays); n > 0 && (t.After == nil || t.After.Time.Before(t.Stays[n-1].From)) {
		t.Doubts = append(t.Doubts, fmt.Sprintf("sandbox %s got the function after sandbox %s without a reset between them", e.VM.Sandbox, t.Stays[n-1].VM.Sandbox))
	}
	t.leave(e.Time)
	t.Stays = append(t.Stays, Stay{VM: *e.VM, From: e.Time})
}

// leave ends the last stay.
func (t *Tenancy) leave(when time.Time) {
	if n := len(t.Stays); n > 0 && t.Stays[n-1].To == nil {
		t.Stays[n-1].To = &when
	}
}

func (t *Tenancy) note(e *ledger.Event) {
	t.Events = append(t.Events, e.Seq)
	if e.Late {
		t.Doubts = append(t.Doubts, fmt.Sprintf("event %d (%s) was written late, after a crash: its time is when that was found", e.Seq, e.Type))
	}
}

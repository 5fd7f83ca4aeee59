package facts

import (
	"fmt"
	"slices"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// PastTenancy is the time during which one claim has one function.
type PastTenancy struct {
	// Device is the function, with its isolation verdict, when the claim took it.
	Device ledger.Device `json:"device"`
	Node   string        `json:"node"`
	Claim  ledger.Claim  `json:"claim"`
	Pods   []ledger.Pod  `json:"pods,omitempty"`
	// From is when the claim took the function. To is when the claim ended on the node; nil if it has not ended.
	From time.Time  `json:"from"`
	To   *time.Time `json:"to,omitempty"`
	// Stays are the sandboxes that had the function, in order. If there are none, the function was never in a VM.
	Stays []Stay `json:"stays"`
	// Before is the last reset before the claim took the function. After is the last reset after its last sandbox. They are nil if the
	// ledger has no such reset.
	Before *Cleaning `json:"cleanedBefore,omitempty"`
	After  *Cleaning `json:"cleanedAfter,omitempty"`
	// Sanitized is the last sanitizing stage between the tenancy before and this one; nil if the ledger has none.
	Sanitized *SanitizedBefore `json:"sanitizedBefore,omitempty"`
	// First is set if the ledger has no earlier tenancy of the function.
	First bool `json:"first,omitempty"`
	// Partial is set if the events come from a bundle, which has only a part of the ledger. In this case, Before is all that is known
	// about the time before the tenancy, and a nil Before does not mean that there was no reset.
	Partial bool `json:"-"`
	// Provided are the last values that were set for the function, such as the partition of a GPU's NVLink fabric.
	Provided []ledger.Provided `json:"provided,omitempty"`
	// Quarantined is the reason for which the function was quarantined at the end; empty if it was not.
	Quarantined string `json:"quarantined,omitempty"`
	// Quarantines are all quarantines of the function in the tenancy, in order, including those that ended.
	Quarantines []PastQuarantine `json:"quarantines,omitempty"`
	// Unproven is set if the function was released without proof that it is clean.
	Unproven bool `json:"unproven,omitempty"`
	// Undone is set if the claim was never fully prepared; no VM had the function.
	Undone bool `json:"undone,omitempty"`
	// Doubts describe what the ledger leaves open: events that were written late or are missing.
	Doubts []string `json:"doubts,omitempty"`
	// Events are the numbers of the events that this tenancy is derived from.
	Events []int64 `json:"events"`
}

// Stay is one sandbox that had the function.
type Stay struct {
	VM   ledger.VM  `json:"vm"`
	From time.Time  `json:"from"`
	To   *time.Time `json:"to,omitempty"`
}

// Cleaning is one reset.
type Cleaning struct {
	Time time.Time `json:"time"`
	// Event is the number of the ledger's event.
	Event  int64             `json:"event"`
	Result ledger.Result     `json:"result"`
	Proof  ledger.ResetProof `json:"proof"`
	Reason string            `json:"reason,omitempty"`
}

// Proven reports whether the reset worked and left the function's registers as they were before its tenant.
func (c *Cleaning) Proven() bool {
	return c != nil && c.Result == ledger.OK && c.Proof.OK && c.Proof.Match
}

// Overlaps reports whether the two tenancies overlap in time.
func (t *PastTenancy) Overlaps(o *PastTenancy) bool {
	return (o.To == nil || t.From.Before(*o.To)) && (t.To == nil || o.From.Before(*t.To))
}

// At reports whether the claim had the function at the time.
func (t *PastTenancy) At(when time.Time) bool {
	return !when.Before(t.From) && (t.To == nil || when.Before(*t.To))
}

// Tenant returns the claim's tenant: its namespace.
func (t *PastTenancy) Tenant() string { return t.Claim.Namespace }

// Refusal is a claim that did not get its devices.
type Refusal struct {
	Time    time.Time       `json:"time"`
	Event   int64           `json:"event"`
	Claim   ledger.Claim    `json:"claim"`
	Devices []ledger.Device `json:"devices,omitempty"`
	Codes   []string        `json:"codes,omitempty"`
	Reason  string          `json:"reason"`
}

// History derives tenancies from a ledger's events: who had which function, when, in which VM, how isolated, and how it was
// cleaned before and after. It has every tenancy and refusal. Add its events in order; the zero value is empty.
type History struct {
	// Tenancies are in order of their beginning.
	Tenancies []*PastTenancy `json:"tenancies"`
	Refusals  []Refusal      `json:"refusals"`

	open   map[pci.Address][]*PastTenancy // tenancies that have not ended
	claims map[string][]*PastTenancy      // the same tenancies, by the claim's UID
	had    map[pci.Address]bool
	resets map[pci.Address]*Cleaning // the last of each function
	// sanitized has the last stage since the last tenancy of each function.
	sanitized map[pci.Address]*SanitizedBefore
}

// OfClaim returns the tenancies of the claims that match a UID, a name, or "namespace/name".
func (h *History) OfClaim(which string) []*PastTenancy {
	return h.where(func(t *PastTenancy) bool {
		return t.Claim.UID == which || t.Claim.Name == which || t.Claim.Namespace+"/"+t.Claim.Name == which
	})
}

// OfPod returns the tenancies of a pod's claims. which is a UID or "namespace/name".
func (h *History) OfPod(which string) []*PastTenancy {
	return h.where(func(t *PastTenancy) bool {
		return slices.ContainsFunc(t.Pods, func(p ledger.Pod) bool {
			return p.UID == which || t.Claim.Namespace+"/"+p.Name == which
		})
	})
}

// OfDevice returns the tenancies of a function.
func (h *History) OfDevice(a pci.Address) []*PastTenancy {
	return h.where(func(t *PastTenancy) bool { return t.Device.Address == a })
}

// At returns the tenancies at a time.
func (h *History) At(when time.Time) []*PastTenancy {
	return h.where(func(t *PastTenancy) bool { return t.At(when) })
}

func (h *History) where(is func(*PastTenancy) bool) []*PastTenancy {
	var found []*PastTenancy
	for _, t := range h.Tenancies {
		if is(t) {
			found = append(found, t)
		}
	}
	return found
}

// Add adds the next event of the ledger. It ignores events that don't concern tenancies.
func (h *History) Add(e *ledger.Event) {
	if h.open == nil {
		h.open, h.claims = map[pci.Address][]*PastTenancy{}, map[string][]*PastTenancy{}
		h.had, h.resets = map[pci.Address]bool{}, map[pci.Address]*Cleaning{}
		h.sanitized = map[pci.Address]*SanitizedBefore{}
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
	case ledger.Bind:
		h.each(e, func(*PastTenancy) {})
	case ledger.Policy:
		h.each(e, func(t *PastTenancy) { t.provide(e) })
	case ledger.Open:
		h.each(e, func(t *PastTenancy) { t.enter(e) })
	case ledger.Close:
		h.each(e, func(t *PastTenancy) { t.leave(e.Time) })
	case ledger.Quarantine:
		h.each(e, func(t *PastTenancy) { t.quarantine(e) })
	case ledger.Clear:
		for _, t := range h.concerned(e) {
			t.order(e)
		}
	case ledger.Release:
		h.each(e, func(t *PastTenancy) { t.release(e) })
	case ledger.Sanitize:
		h.sanitize(e)
	case ledger.Start, ledger.Drain, ledger.Undrain, ledger.Audit, ledger.Torn, ledger.Retention:
	}
}

// prepare begins the tenancies of a claim. A second Prepare of a claim that has not ended comes from a plugin that started over
// after a crash. A binding without a claim begins no tenancy, but a reset for it counts as the function's last reset.
func (h *History) prepare(e *ledger.Event) {
	if e.Claim == nil || e.Claim.IsBinding() || e.Result != ledger.OK {
		return
	}
	for i := range e.Devices {
		d := e.Devices[i]
		if t := h.of(d.Address, e.Claim.UID); t != nil {
			t.note(e)
			continue
		}
		t := &PastTenancy{
			Device: d, Node: e.Node, Claim: *e.Claim, Pods: e.Pods, From: e.Time, Stays: []Stay{},
			Before: h.resets[d.Address], First: !h.had[d.Address], Sanitized: h.sanitized[d.Address],
		}
		delete(h.sanitized, d.Address) // the next tenancy needs a stage after this one
		t.note(e)
		// Either the end of a claim is missing, or two claims had the function at once: the ledger can't tell which.
		for _, other := range h.open[d.Address] {
			t.Doubts = append(t.Doubts, fmt.Sprintf("claim %s had the function, and the ledger has no end of that claim", other.Claim.UID))
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

// reset records a reset for each function that it affected, and for the function's tenancy if that has not ended.
func (h *History) reset(e *ledger.Event) {
	if e.Reset == nil {
		return
	}
	c := &Cleaning{Time: e.Time, Event: e.Seq, Result: e.Result, Proof: *e.Reset, Reason: e.Reason}
	// A reset of a bus or slot reaches every function there, whichever claim has it (pci_reset_bus in drivers/pci/pci.c).
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

// cleaned records a reset during the tenancy: in Before if no sandbox had the function yet, otherwise in After.
func (t *PastTenancy) cleaned(e *ledger.Event, c *Cleaning) {
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
		is := func(o *PastTenancy) bool { return o == t }
		h.open[t.Device.Address] = slices.DeleteFunc(h.open[t.Device.Address], is)
		if h.claims[t.Claim.UID] = slices.DeleteFunc(h.claims[t.Claim.UID], is); len(h.claims[t.Claim.UID]) == 0 {
			delete(h.claims, t.Claim.UID)
		}
	}
}

// each records the event in the tenancies that it concerns and applies change to them.
func (h *History) each(e *ledger.Event, change func(*PastTenancy)) {
	for _, t := range h.concerned(e) {
		t.note(e)
		change(t)
	}
}

// concerned returns the open tenancies of the event's claim: those of the event's devices, or all if it names none.
func (h *History) concerned(e *ledger.Event) []*PastTenancy {
	if e.Claim == nil {
		return nil
	}
	var found []*PastTenancy
	for _, t := range h.claims[e.Claim.UID] {
		if len(e.Devices) == 0 || e.Concerns(t.Device.Address) {
			found = append(found, t)
		}
	}
	return found
}

func (h *History) of(a pci.Address, claim string) *PastTenancy {
	for _, t := range h.open[a] {
		if t.Claim.UID == claim {
			return t
		}
	}
	return nil
}

// provide records the values that were set for the function according to an event.
func (t *PastTenancy) provide(e *ledger.Event) {
	for i := range e.Devices {
		if d := &e.Devices[i]; d.Address == t.Device.Address && len(d.Provided) > 0 {
			t.Provided = d.Provided
		}
	}
}

// enter begins a stay. If the event is for the sandbox of the current stay, it adds the VMM's process to that stay.
func (t *PastTenancy) enter(e *ledger.Event) {
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
func (t *PastTenancy) leave(when time.Time) {
	if n := len(t.Stays); n > 0 && t.Stays[n-1].To == nil {
		t.Stays[n-1].To = &when
	}
}

func (t *PastTenancy) note(e *ledger.Event) {
	t.Events = append(t.Events, e.Seq)
	if e.Late {
		t.Doubts = append(t.Doubts, fmt.Sprintf("event %d (%s) was written after a crash: its time is when the plugin found that", e.Seq, e.Type))
	}
}

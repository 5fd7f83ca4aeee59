// Package history makes tenancies of a ledger's events: who had which function,
// when, in which VM, how isolated, and cleaned by what before and after.
package history

import (
	"slices"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// Tenancy is one claim's hold on one function.
type Tenancy struct {
	// Device is the function as it was when the claim took it, with its isolation
	// verdict of that moment.
	Device ledger.Device `json:"device"`
	Node   string        `json:"node"`
	Claim  ledger.Claim  `json:"claim"`
	Pods   []ledger.Pod  `json:"pods,omitempty"`
	// From is when the claim took the function, To when it was off the node again;
	// nil while it is not.
	From time.Time  `json:"from"`
	To   *time.Time `json:"to,omitempty"`
	// Stays are the sandboxes that had the function, in order. A claim without any
	// was never in a VM.
	Stays []Stay `json:"stays"`
	// Before is the last reset before the claim took the function, After the last
	// one after its last sandbox. Nil where the ledger has none.
	Before *Cleaning `json:"cleanedBefore,omitempty"`
	After  *Cleaning `json:"cleanedAfter,omitempty"`
	// First is set where the ledger has no earlier tenancy of the function.
	First bool `json:"first,omitempty"`
	// Partial is set where not all of a ledger's events were looked at, but a bundle's: of what was before the
	// tenancy only Before can tell then, and its absence says nothing.
	Partial bool `json:"-"`
	// Quarantined says why the function was kept from reuse at the end.
	Quarantined string `json:"quarantined,omitempty"`
	// Unproven is set where it was given back without a proof of its being clean.
	Unproven bool `json:"unproven,omitempty"`
	// Undone is set for a claim that never got to its end; no VM had the function.
	Undone bool `json:"undone,omitempty"`
	// Doubts say what the ledger leaves open: events that were written late, or
	// that are missing.
	Doubts []string `json:"doubts,omitempty"`
	// Events are the numbers of the ledger's events that say all this.
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

// Proven reports whether the reset worked and left the function as it was.
func (c *Cleaning) Proven() bool {
	return c != nil && c.Result == ledger.OK && c.Proof.OK && c.Proof.Match
}

// Overlaps reports whether two tenancies were at one time.
func (t *Tenancy) Overlaps(o *Tenancy) bool {
	return (o.To == nil || t.From.Before(*o.To)) && (t.To == nil || o.From.Before(*t.To))
}

// At reports whether the claim had the function at that moment.
func (t *Tenancy) At(when time.Time) bool {
	return !when.Before(t.From) && (t.To == nil || when.Before(*t.To))
}

// Tenant is whose the claim is: its namespace.
func (t *Tenancy) Tenant() string { return t.Claim.Namespace }

// Refusal is a claim that did not get its devices.
type Refusal struct {
	Time    time.Time       `json:"time"`
	Event   int64           `json:"event"`
	Claim   ledger.Claim    `json:"claim"`
	Devices []ledger.Device `json:"devices,omitempty"`
	Codes   []string        `json:"codes,omitempty"`
	Reason  string          `json:"reason"`
}

// History is all that a ledger says of tenancies. It is made by adding its
// events in order; the zero value is empty.
type History struct {
	// Tenancies are in the order in which they began.
	Tenancies []*Tenancy `json:"tenancies"`
	Refusals  []Refusal  `json:"refusals"`

	open   map[pci.Address][]*Tenancy // not yet ended
	claims map[string][]*Tenancy      // the same by claim
	had    map[pci.Address]bool
	resets map[pci.Address]*Cleaning // the last of each function
}

// OfClaim returns the tenancies of the claims that match: a UID, a name, or
// "namespace/name".
func (h *History) OfClaim(which string) []*Tenancy {
	return h.where(func(t *Tenancy) bool {
		return t.Claim.UID == which || t.Claim.Name == which || t.Claim.Namespace+"/"+t.Claim.Name == which
	})
}

// OfPod returns the tenancies of the claims of a pod: a UID, or "namespace/name".
func (h *History) OfPod(which string) []*Tenancy {
	return h.where(func(t *Tenancy) bool {
		return slices.ContainsFunc(t.Pods, func(p ledger.Pod) bool {
			return p.UID == which || t.Claim.Namespace+"/"+p.Name == which
		})
	})
}

// OfDevice returns the tenancies of a function.
func (h *History) OfDevice(a pci.Address) []*Tenancy {
	return h.where(func(t *Tenancy) bool { return t.Device.Address == a })
}

// At returns the tenancies of a moment.
func (h *History) At(when time.Time) []*Tenancy {
	return h.where(func(t *Tenancy) bool { return t.At(when) })
}

func (h *History) where(is func(*Tenancy) bool) []*Tenancy {
	var found []*Tenancy
	for _, t := range h.Tenancies {
		if is(t) {
			found = append(found, t)
		}
	}
	return found
}

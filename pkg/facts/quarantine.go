package facts

import (
	"fmt"
	"slices"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/ledger"
)

// PastQuarantine is a time in which a function was in quarantine after its tenant.
type PastQuarantine struct {
	From   time.Time `json:"from"`
	Reason string    `json:"reason"`
	// Orders are the operators' orders to end it, in order of time.
	Orders []ClearOrder `json:"orders,omitempty"`
	// To is when the quarantine ended; nil if it has not ended.
	To *time.Time `json:"to,omitempty"`
}

// ClearOrder is an operator's order to end a quarantine. The ledger has it before the reset is tried.
type ClearOrder struct {
	Time time.Time `json:"time"`
	// Event is the number of the ledger's event.
	Event int64 `json:"event"`
	// By is nil if the writer of the ledger did not know the operator.
	By     *ledger.Operator `json:"by,omitempty"`
	Reason string           `json:"reason"`
	// Unproven is set if the order was to end the quarantine without a proven reset.
	Unproven bool `json:"unproven,omitempty"`
	// Failed is the reason why the quarantine did not end, and FailedAt is the time when the plugin found that. They are empty and nil
	// if the quarantine ended, or if the ledger does not say.
	Failed   string     `json:"failed,omitempty"`
	FailedAt *time.Time `json:"failedAt,omitempty"`
}

// Words is "by uid 0, alice by sudo: ticket 4711".
func (c *ClearOrder) Words() string {
	words := ""
	if c.By != nil {
		words = "by " + c.By.String() + ": "
	}
	words += c.Reason
	if c.Unproven {
		words += " (without proof)"
	}
	return words
}

// quarantine begins a quarantine. If the tenancy is in quarantine already, the event means that the last order to end the
// quarantine failed.
func (t *PastTenancy) quarantine(e *ledger.Event) {
	t.Quarantined = e.Reason
	q := t.openQuarantine()
	if q == nil {
		t.Quarantines = append(t.Quarantines, PastQuarantine{From: e.Time, Reason: e.Reason})
		return
	}
	if n := len(q.Orders); n > 0 {
		q.Orders[n-1].Failed, q.Orders[n-1].FailedAt = e.Reason, new(e.Time)
	}
}

// order records an order to end a quarantine. The order is not added to the tenancy's Events, so that bundles of earlier versions
// still verify.
func (t *PastTenancy) order(e *ledger.Event) {
	q := t.openQuarantine()
	if q == nil {
		t.Doubts = append(t.Doubts, fmt.Sprintf("event %d orders the end of a quarantine, and the events before have none", e.Seq))
		return
	}
	q.Orders = append(q.Orders, ClearOrder{Time: e.Time, Event: e.Seq, By: e.By, Reason: e.Reason, Unproven: slices.Contains(e.Codes, ledger.CodeUnproven)})
}

// release ends a quarantine.
func (t *PastTenancy) release(e *ledger.Event) {
	t.Quarantined = ""
	if q := t.openQuarantine(); q != nil {
		q.To = new(e.Time)
	}
}

func (t *PastTenancy) openQuarantine() *PastQuarantine {
	if n := len(t.Quarantines); n > 0 && t.Quarantines[n-1].To == nil {
		return &t.Quarantines[n-1]
	}
	return nil
}

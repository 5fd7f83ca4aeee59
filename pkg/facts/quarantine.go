package facts

import (
	"slices"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/ledger"
)

// PastQuarantine is a time in which a function was in quarantine after its tenant.
type PastQuarantine struct {
	From   time.Time `json:"from"`
	Reason string    `json:"reason"`
	// Clears are the operators' attempts to end it, in order.
	Clears []Clear `json:"clears,omitempty"`
	// To is when it ended; nil while it has not.
	To *time.Time `json:"to,omitempty"`
}

// Clear is an operator's order to end a quarantine. The ledger has it before the reset is tried.
type Clear struct {
	Time time.Time `json:"time"`
	// By is nil in ledgers whose writer did not know the operator.
	By     *ledger.Operator `json:"by,omitempty"`
	Reason string           `json:"reason"`
	// Unproven is set if the order was to end the quarantine without a proven reset.
	Unproven bool `json:"unproven,omitempty"`
}

// Words is "by uid 0, alice by sudo: ticket 4711".
func (c *Clear) Words() string {
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

// quarantine begins a quarantine. Another one before its end is a failed attempt to clear it, whose reason is the latest.
func (t *PastTenancy) quarantine(e *ledger.Event) {
	t.Quarantined = e.Reason
	if q := t.lastQuarantine(); q != nil && q.To == nil {
		q.Reason = e.Reason
		return
	}
	t.Quarantines = append(t.Quarantines, PastQuarantine{From: e.Time, Reason: e.Reason})
}

// clear records an order. Those that found no quarantine in the events are of one whose beginning is missing.
func (t *PastTenancy) clear(e *ledger.Event) {
	if q := t.lastQuarantine(); q != nil {
		q.Clears = append(q.Clears, Clear{Time: e.Time, By: e.By, Reason: e.Reason, Unproven: slices.Contains(e.Codes, ledger.CodeUnproven)})
	}
}

// release ends a quarantine.
func (t *PastTenancy) release(e *ledger.Event) {
	t.Quarantined = ""
	if q := t.lastQuarantine(); q != nil && q.To == nil {
		q.To = new(e.Time)
	}
}

func (t *PastTenancy) lastQuarantine() *PastQuarantine {
	if n := len(t.Quarantines); n > 0 {
		return &t.Quarantines[n-1]
	}
	return nil
}

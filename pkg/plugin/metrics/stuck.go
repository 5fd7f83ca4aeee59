package metrics

import (
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
)

// StuckClaims counts the claims on the node that neither become ready nor end.
type StuckClaims struct {
	Count int
	// State and Since are those of the claim that has been stuck the longest.
	State journal.State
	Since time.Time
}

// StuckClaims returns the claims that have been in preparation or release since before the given time, or could not be unprepared since
// before it. The alert KataVFIOClaimStuck is about these claims.
func (m *Metrics) StuckClaims(before time.Time) StuckClaims {
	var s StuckClaims
	failing := m.failing.all()
	records, _ := m.failing.records.List()
	for _, r := range records {
		since, fails := failing[r.ID()]
		switch r.State {
		case journal.Preparing, journal.Releasing, journal.Cleaned:
			if at, err := time.Parse(time.RFC3339, r.Since); err == nil && (!fails || at.Before(since)) {
				since = at
			}
		case journal.Prepared: // it is stuck only if it can't be unprepared
		default:
			continue
		}
		if since.IsZero() || !since.Before(before) {
			continue
		}
		if s.Count++; s.Since.IsZero() || since.Before(s.Since) {
			s.State, s.Since = r.State, since
		}
	}
	return s
}

// Damaged returns how many records of the journal can't be read.
func (m *Metrics) Damaged() int {
	_, errs := m.failing.records.List()
	return len(errs)
}

package metrics_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/metrics"
)

// TestStuckClaimsAreThoseOfTheAlert: records on their way, and claims that can't be unprepared, each once.
func TestStuckClaimsAreThoseOfTheAlert(t *testing.T) {
	now := time.Now().UTC().Truncate(time.Second)
	record := func(state journal.State, uid string, age time.Duration) *journal.Record {
		return &journal.Record{State: state, Since: now.Add(-age).Format(time.RFC3339), Plan: plan.Plan{Claim: plan.Ref{UID: uid}}}
	}
	m := metrics.New(journalOf{[]*journal.Record{
		record(journal.Prepared, "runs", 24*time.Hour), record(journal.Prepared, "held", 24*time.Hour), record(journal.Quarantined, "known", time.Hour),
		record(journal.Releasing, "late", time.Hour), record(journal.Preparing, "new", time.Minute), record(journal.Cleaned, "last", 30*time.Minute),
	}, []error{journal.ErrDamaged}}, func() int { return 0 })
	for _, uid := range []string{"held", "late", "known"} {
		m.ObserveUnprepare(uid, time.Second, errors.New("a process has it open"))
	}
	want := metrics.StuckClaims{Count: 2, State: journal.Releasing, Since: now.Add(-time.Hour)}
	if diff := cmp.Diff(want, m.StuckClaims(now.Add(-10*time.Minute))); diff != "" {
		t.Errorf("ten minutes ago (-want +got):\n%s", diff)
	}
	if got := m.StuckClaims(now.Add(time.Minute)); got.Count != 4 { // and what began now
		t.Errorf("%+v, want 4 claims: the one that is held, too", got)
	}
	if got := m.Damaged(); got != 1 {
		t.Errorf("%d damaged records, want 1", got)
	}
}

package monitor

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// repeatAfter is how long the ledger goes without word of the checks: who reads it
// later is to see that they were asked, and not only that nothing failed.
const repeatAfter = 12 * time.Hour

// published is what the ledger says of the checks.
type published struct {
	outcome *outcome  // nil for nothing yet
	at      time.Time // when it was told all of it
}

// events returns what the ledger is to be told. The first of a run, and the
// repetitions, say all of it; those between say what changed.
func (t *published) events(now *outcome, at time.Time) (events []ledger.Event, whole bool) {
	whole = t.outcome == nil || at.Sub(t.at) >= repeatAfter
	before := &outcome{}
	if !whole {
		before = t.outcome
	}
	if whole || !slices.Equal(ids(before.node), ids(now.node)) {
		events = append(events, event(now.node))
	}
	for _, codes := range changedSets(before, now) {
		e := event(codes.failures)
		for _, a := range codes.devices {
			e.Devices = append(e.Devices, ledger.Device{Address: a})
		}
		events = append(events, e)
	}
	return events, whole
}

func event(failures []finding.Failure) ledger.Event {
	e := ledger.Event{Type: ledger.Audit, Result: ledger.OK, Codes: ids(failures)}
	if len(failures) > 0 {
		e.Result = ledger.Failed
	}
	return e
}

// set is functions for which the same rules fail.
type set struct {
	failures []finding.Failure
	devices  []pci.Address
}

// changedSets returns the functions whose failures are others than before, those
// with the same ones together.
func changedSets(before, now *outcome) []set {
	sets := map[string]*set{}
	addresses := slices.Collect(maps.Keys(now.devices))
	addresses = slices.AppendSeq(addresses, maps.Keys(before.devices))
	slices.SortFunc(addresses, pci.Address.Compare)
	for _, a := range slices.Compact(addresses) {
		key := ids(now.devices[a])
		if slices.Equal(ids(before.devices[a]), key) {
			continue
		}
		s := sets[strings.Join(key, " ")]
		if s == nil {
			s = &set{failures: now.devices[a]}
			sets[strings.Join(key, " ")] = s
		}
		s.devices = append(s.devices, a)
	}
	var all []set
	for _, key := range slices.Sorted(maps.Keys(sets)) {
		all = append(all, *sets[key])
	}
	return all
}

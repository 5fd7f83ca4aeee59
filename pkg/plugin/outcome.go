package plugin

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/audit/check"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// newDevices returns the functions for which something fails that did not before.
func newDevices(now, before *check.Failures) []pci.Address {
	var all []pci.Address
	for a, failures := range now.Devices {
		if slices.ContainsFunc(failures, func(f rule.Failure) bool { return !slices.Contains(before.Devices[a], f) }) {
			all = append(all, a)
		}
	}
	slices.SortFunc(all, pci.Address.Compare)
	return all
}

// weigh returns the failures that count. A function that is being prepared or released, or was since the previous look, may be in a
// transient state. Its new failures are left to the next look.
func (m *Monitor) weigh(n *facts.Node, findings []finding.Finding, earlier *facts.Node) *check.Failures {
	return m.enforced.Weigh(findings, func(a pci.Address, failure rule.Failure) bool {
		return !slices.Contains(m.now.Devices[a], failure) && (check.InTransition(n, a) || !sameTenancies(n, earlier, a))
	})
}

// sameTenancies reports whether the same claims had the function, in the same states, at both times that the journal was read.
func sameTenancies(n, earlier *facts.Node, a pci.Address) bool {
	return slices.EqualFunc(n.TenanciesAt(a), earlier.TenanciesAt(a), func(one, other facts.Tenancy) bool {
		return one.Record.Plan.Claim.UID == other.Record.Plan.Claim.UID && one.Record.State == other.Record.State
	})
}

// ids returns the IDs of the failing rules in order.
func ids(failures []rule.Failure) []string {
	var all []string
	for _, f := range failures {
		all = append(all, f.ID)
	}
	slices.Sort(all)
	return all
}

// repeatAfter is the longest time without an event of the checks in the ledger. The ledger must show that the checks ran, and not only that
// nothing failed.
const repeatAfter = 12 * time.Hour

// published is the last state of the checks that the ledger has.
type published struct {
	outcome *check.Failures // nil if the ledger has no state yet
	at      time.Time       // when the ledger last got the whole state
}

// events returns the events for the ledger. The first events of a run, and the repetitions, contain the whole state; all others contain
// only changes.
func (t *published) events(now *check.Failures, at time.Time) (events []ledger.Event, whole bool) {
	whole = t.outcome == nil || at.Sub(t.at) >= repeatAfter
	before := &check.Failures{}
	if !whole {
		before = t.outcome
	}
	if whole || !slices.Equal(ids(before.Node), ids(now.Node)) {
		events = append(events, event(now.Node))
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

func event(failures []rule.Failure) ledger.Event {
	e := ledger.Event{Type: ledger.Audit, Result: ledger.OK, Codes: ids(failures)}
	if len(failures) > 0 {
		e.Result = ledger.Failed
	}
	return e
}

// set is a set of functions for which the same rules fail.
type set struct {
	failures []rule.Failure
	devices  []pci.Address
}

// changedSets returns the functions whose failures differ from before, grouped by their failures.
func changedSets(before, now *check.Failures) []set {
	sets := map[string]*set{}
	addresses := slices.Collect(maps.Keys(now.Devices))
	addresses = slices.AppendSeq(addresses, maps.Keys(before.Devices))
	slices.SortFunc(addresses, pci.Address.Compare)
	for _, a := range slices.Compact(addresses) {
		key := ids(now.Devices[a])
		if slices.Equal(ids(before.Devices[a]), key) {
			continue
		}
		s := sets[strings.Join(key, " ")]
		if s == nil {
			s = &set{failures: now.Devices[a]}
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

package monitor

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// outcome is what a look at the node came to: the failures that count, the worst
// first, each rule once.
type outcome struct {
	node    []finding.Failure
	devices map[pci.Address][]finding.Failure
}

// failing returns what fails for a function, what fails for the whole node
// included.
func (o *outcome) failing(a pci.Address) []finding.Failure {
	own := o.devices[a]
	if len(own) == 0 {
		return o.node
	}
	return finding.WorstFirst(slices.Concat(o.node, own))
}

// newDevices returns the functions for which something fails that did not before.
func (o *outcome) newDevices(before *outcome) []pci.Address {
	var all []pci.Address
	for a, failures := range o.devices {
		if slices.ContainsFunc(failures, func(f finding.Failure) bool { return !slices.Contains(before.devices[a], f) }) {
			all = append(all, a)
		}
	}
	slices.SortFunc(all, pci.Address.Compare)
	return all
}

// weigh returns the failures that count. A function that is being prepared or released, or was since the previous look,
// may be in a transient state: its new failures wait for the next look.
func (m *Monitor) weigh(n *facts.Node, findings []finding.Finding, earlier *facts.Node) *outcome {
	o := &outcome{devices: map[pci.Address][]finding.Failure{}}
	for i := range findings {
		f := &findings[i]
		if f.State != finding.Fail || m.static[f.ID] || m.Counts == finding.Off || f.Severity.Compare(m.Counts) > 0 {
			continue
		}
		failure := finding.Failure{ID: f.ID, Severity: f.Severity}
		if len(f.Devices) == 0 {
			o.node = append(o.node, failure)
		}
		for _, a := range f.Devices {
			if !slices.Contains(m.now.devices[a], failure) && (inBetween(n, a) || !sameTenancies(n, earlier, a)) {
				continue
			}
			o.devices[a] = append(o.devices[a], failure)
		}
	}
	o.node = finding.WorstFirst(o.node)
	for a, failures := range o.devices {
		o.devices[a] = finding.WorstFirst(failures)
	}
	return o
}

func inBetween(n *facts.Node, a pci.Address) bool {
	return slices.ContainsFunc(n.TenanciesOf(a), func(t facts.Tenancy) bool {
		return t.Record.State != journal.Prepared && t.Record.State != journal.Quarantined
	})
}

// sameTenancies reports whether the same claims had the function, as far, at both
// times that the journal was read.
func sameTenancies(n, earlier *facts.Node, a pci.Address) bool {
	return slices.EqualFunc(n.TenanciesOf(a), earlier.TenanciesOf(a), func(one, other facts.Tenancy) bool {
		return one.Record.Plan.Claim.UID == other.Record.Plan.Claim.UID && one.Record.State == other.Record.State
	})
}

// ids returns the rules of failures, by name.
func ids(failures []finding.Failure) []string {
	var all []string
	for _, f := range failures {
		all = append(all, f.ID)
	}
	slices.Sort(all)
	return all
}

// repeatAfter is how long the ledger goes without word of the checks: who reads it
// later is to see that they were asked, and not only that nothing failed.
const repeatAfter = 12 * time.Hour

// published is the last state of the checks in the ledger.
type published struct {
	outcome *outcome  // nil for nothing yet
	at      time.Time // when it was told all of it
}

// events returns the events for the ledger. The first event of a run, and the repetitions, have the whole state; the
// others have the changes.
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

package monitor

import (
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/finding"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
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

// weigh returns the failures of severity counts or worse. A function that a claim
// is just taking or giving back is in between states that a check may not know:
// what is new there waits for the next look.
func weigh(n *facts.Node, findings []finding.Finding, counts isolation.Severity, before *outcome, static map[string]bool) *outcome {
	o := &outcome{devices: map[pci.Address][]finding.Failure{}}
	for i := range findings {
		f := &findings[i]
		if f.State != finding.Fail || static[f.ID] || counts == finding.Off || f.Severity.Compare(counts) > 0 {
			continue
		}
		failure := finding.Failure{ID: f.ID, Severity: f.Severity}
		if len(f.Devices) == 0 {
			o.node = append(o.node, failure)
		}
		for _, a := range f.Devices {
			if had := before.devices[a]; inBetween(n, a) && !slices.Contains(had, failure) {
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

// ids returns the rules of failures, by name.
func ids(failures []finding.Failure) []string {
	var all []string
	for _, f := range failures {
		all = append(all, f.ID)
	}
	slices.Sort(all)
	return all
}

package dra

import (
	"context"
	"fmt"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/maintain"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// describe collects the facts for publishing. After an error no device is judged.
func (p *Publisher) describe(ctx context.Context, snap *device.Snapshot) (*publish.Node, error) {
	known, err := p.config.Node.PlanNode(ctx, snap)
	known.Failing = p.failing
	if p.config.Attempts != nil {
		known.Attempted = p.config.Attempts.Failing()
	}
	n := &publish.Node{
		Name: p.config.NodeName, Snapshot: snap, Selection: known.Selection, FormerNames: p.formerNames,
		Assessments: map[pci.Address]plan.Assessment{}, Health: map[pci.Address]publish.Health{},
	}
	n.Versions = p.config.Node.Versions()
	records, unread := p.config.Records.List() // a metric counts unreadable records, and the assessments refuse devices that these can hold
	p.addLost(&known, records)
	addrs := p.enter(n, records)
	p.withdrawals.locked(func(w *publish.Withdrawals) { w.Enter(n, p.withdrawals.in(staleTime), len(unread) > 0) })
	for _, f := range n.Selection.Ours() {
		addrs = append(addrs, f.Address)
	}
	if err == nil {
		assess(n, known, addrs)
	}
	p.audit(n, addrs)
	p.drain(n)
	p.keep(n, &known)
	if err != nil {
		err = fmt.Errorf("no device can be judged, so all are tainted: %w", err)
	}
	return n, err
}

// addLost adds the functions of claims that lost them at the API server but still have them on the node. The scheduler believes that these
// functions are free.
func (p *Publisher) addLost(known *plan.Node, records []*journal.Record) {
	lost := p.config.Node.Lost()
	for _, rec := range records {
		if _, ok := lost[rec.ID()]; !ok {
			continue
		}
		if known.Attempted == nil {
			known.Attempted = map[pci.Address]rule.Code{}
		}
		for _, a := range rec.Plan.Addresses() {
			known.Attempted[a] = rule.HeldByLostClaim
		}
	}
}

// assess judges functions.
func assess(n *publish.Node, known plan.Node, addrs []pci.Address) {
	assessor := plan.NewAssessor(known)
	for _, a := range addrs {
		f, ok := n.Snapshot.Function(a)
		if _, done := n.Assessments[a]; ok && !done {
			n.Assessments[a] = assessor.Assess(f)
		}
	}
}

// failing returns the IDs of the checks that fail for a function.
func (p *Publisher) failing(a pci.Address) []string {
	var ids []string
	for _, f := range p.config.Node.Failing(a) {
		ids = append(ids, f.ID)
	}
	return ids
}

// drain adds the drained functions.
func (p *Publisher) drain(n *publish.Node) {
	drains := p.config.Node.Drains(n.Snapshot)
	for a, state := range DrainStates(drains) {
		h := n.Health[a]
		h.Drained = state
		n.Health[a] = h
	}
	for _, d := range drains {
		for i := range d.Functions {
			a := d.Functions[i].Address
			h := n.Health[a]
			h.Evict = h.Evict || d.Evict
			n.Health[a] = h
		}
	}
}

// audit adds the checks that fail for the devices, allocated ones included.
func (p *Publisher) audit(n *publish.Node, addrs []pci.Address) {
	for _, a := range addrs {
		h := n.Health[a]
		h.Failing = p.config.Node.Failing(a)
		n.Health[a] = h
	}
}

// enter adds the devices that records hold, and returns their functions.
func (p *Publisher) enter(n *publish.Node, records []*journal.Record) []pci.Address {
	var addrs []pci.Address
	for _, rec := range records {
		// After a reboot no VM runs, and Recover undoes the records of earlier boots. A quarantine outlives the boot.
		holds := rec.BootID == n.Snapshot.Host.BootID || rec.State == journal.Quarantined
		if !holds || rec.Kind == journal.Bound {
			continue
		}
		for _, parts := range rec.Plan.Allocated() {
			n.Allocated = append(n.Allocated, publish.Allocated{Pool: parts[0].Pool, Name: parts[0].Published()})
		}
		addrs = append(addrs, rec.Plan.Addresses()...)
	}
	return addrs
}

// DrainState returns the state of a drain.
func DrainState(d *maintain.Draining) rule.Code {
	if d.Done() {
		return rule.Drained
	}
	return rule.Draining
}

// DrainStates returns the state of the drain of each drained function, for taints and metrics. If drains share a function,
// an unfinished drain counts, because the function is still in use.
func DrainStates(drains []maintain.Draining) map[pci.Address]rule.Code {
	states := map[pci.Address]rule.Code{}
	for i := range drains {
		state := DrainState(&drains[i])
		for _, f := range drains[i].Functions {
			if states[f.Address] != rule.Draining {
				states[f.Address] = state
			}
		}
	}
	return states
}

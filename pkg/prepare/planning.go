package prepare

import (
	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// Planning builds the input of plans from the node config, the journal and the snapshot.
type Planning struct{ config *Config }

// Make plans a claim for the node in the snapshot's state.
func (p *Planning) Make(req *claim.Request, snap *device.Snapshot) (*plan.Plan, error) {
	n, err := p.PlanNode(snap)
	if err != nil {
		return nil, err
	}
	return plan.Make(req, n)
}

// PlanNode is [Preparer.PlanNode].
func (p *Planning) PlanNode(snap *device.Snapshot) (plan.Node, error) {
	n := p.WithOwners(snap)
	var err error
	if n.NeedsReset, err = p.needsReset(snap); err != nil {
		return n, err
	}
	if n.Drained, err = p.Drained(snap); err != nil {
		return n, err
	}
	if err = p.addSanitizing(&n); err != nil {
		return n, err
	}
	n.FatalErrors, err = p.fatalErrors(snap)
	return n, err
}

// WithOwners adds config and journal to a snapshot.
func (p *Planning) WithOwners(snap *device.Snapshot) plan.Node {
	holdings, damaged := p.holdings(snap)
	var pools []v1alpha1.AddressPool
	if p.config.Node != nil {
		pools = p.config.Node.AddressPools
	}
	var failing func(pci.Address) []string
	if p.config.Checks != nil {
		failing = p.config.Checks.IDs
	}
	return plan.Node{
		Name:      p.config.NodeName,
		Snapshot:  snap,
		Selection: nodeconfig.Select(p.config.Node, snap),
		Owners:    holdings,
		Damaged:   damaged,

		AddressPools: pools,
		Stages:       p.stages(),
		Failing:      failing,
		Provides:     p.config.Provides,

		HotPlug:       p.config.HotPlug,
		HotPlugWindow: p.config.HotPlugWindow,
	}
}

// holdings returns the record that holds each function, and the name of a damaged record, if any. A record of an
// earlier boot holds nothing, unless it is a quarantine: a restart of the machine (perhaps by kexec) does not prove
// that the device is clean.
func (p *Planning) holdings(snap *device.Snapshot) (map[pci.Address]plan.Owner, string) {
	records, errs := p.config.Parts.Journal.List()
	return journal.Holdings(records, snap), journal.Damaged(errs)
}

// needsReset returns the functions that are marked as not proven clean.
func (p *Planning) needsReset(snap *device.Snapshot) (map[pci.Address]bool, error) {
	marks, err := p.config.Parts.Journal.NeedsReset()
	if err != nil {
		return nil, err
	}
	return journal.NeedReset(marks, snap), nil
}

// Drained returns which functions are out of use, and why, for plans.
func (p *Planning) Drained(snap *device.Snapshot) (map[pci.Address]string, error) {
	marks, err := p.config.Parts.Journal.Drains()
	if err != nil {
		return nil, err
	}
	return journal.DrainReasons(marks, snap), nil
}

// addSanitizing adds two sets of functions: those that must pass a sanitizing stage first, and those that have passed
// one. If no rule asks for stages, it reads no marks.
func (p *Planning) addSanitizing(n *plan.Node) error {
	if !n.Selection.Sanitizes() {
		return nil
	}
	marks, err := p.config.Parts.Journal.Unsanitized()
	if err != nil {
		return err
	}
	proofs, err := p.config.Parts.Journal.Sanitized()
	if err != nil {
		return err
	}
	n.Sanitizing = journal.Sanitizing(journal.SanitizingFacts{
		Snapshot: n.Snapshot, Selection: n.Selection, Profiles: p.config.Sanitizers, Marks: marks, Proofs: proofs,
	})
	n.Sanitized = journal.SanitizedFunctions(proofs, n.Snapshot)
	return nil
}

// stages returns how to recognize the claims of sanitizing stages.
func (p *Planning) stages() plan.Stages {
	s := p.config.Sanitizers
	if s == nil {
		return plan.Stages{}
	}
	return plan.Stages{Namespace: s.Namespace, DeviceClass: s.DeviceClass}
}

// fatalErrors returns the functions with new fatal errors: the kernel has counted more fatal errors than at the time,
// in this boot, when the function was last proven clean or returned to service by an operator. Errors that the kernel
// calls non-fatal don't count: they lose a transaction, not the device, and resets and a tenant's own driver cause
// them.
func (p *Planning) fatalErrors(snap *device.Snapshot) (map[pci.Address]bool, error) {
	// Most functions have no fatal error at all. Then the marks need not be read from the disk.
	grown := journal.Unaccounted(snap, nil)
	if len(grown) == 0 {
		return grown, nil
	}
	marks, err := p.config.Parts.Journal.FatalErrors()
	if err != nil {
		return grown, err
	}
	return journal.Unaccounted(snap, marks), nil
}

package journal

import (
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// Ahead returns the phases that take the record's claim off the node from the state
// that it is in. A boot ID other than the record's means that the node was restarted
// since. Package prepare carries these phases out, after a crash too; a dry run prints
// them.
func (r *Record) Ahead(bootID string) []plan.Phase {
	switch {
	case r.State == Quarantined:
		return slices.Concat(plan.Retest(), plan.Cleaning(), plan.GivingBack())
	case r.BootID != bootID:
		return plan.AfterReboot()
	case r.State == Preparing:
		return plan.Undo()
	case r.State == Cleaned:
		return plan.GivingBack()
	}
	return slices.Concat(plan.Cleaning(), plan.GivingBack())
}

// AheadWithoutProof returns the phases that end a quarantine without a proof.
func (r *Record) AheadWithoutProof(bootID string) []plan.Phase {
	switch {
	case r.BootID != bootID:
		return plan.AfterReboot()
	case r.Plan.ReturnsToHost():
		return slices.Concat([]plan.Phase{plan.RemoveSpec}, plan.ForHost(), plan.GivingBack())
	}
	return slices.Concat([]plan.Phase{plan.RemoveSpec}, plan.GivingBack())
}

// StepsOf returns the steps of phases for functions that are where the record has them.
func (r *Record) StepsOf(bootID string, phases []plan.Phase) []plan.Step {
	return r.Plan.StepsOf(r.place(bootID), phases...)
}

// place returns where the record's functions are.
func (r *Record) place(bootID string) plan.Place {
	switch {
	case r.BootID != bootID:
		return plan.AtOriginal
	case r.State == Quarantined, r.State == Cleaned:
		return plan.AtTarget
	}
	return plan.AtPrepared
}

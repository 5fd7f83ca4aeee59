package audit

import (
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// Against returns all that stands against giving the function to a VM, worst first: the
// reasons of the isolation verdict, and then, with severity high, what else Prepare refuses
// a claim for. That the node config does not name the function is not among it.
func (d *Device) Against() []isolation.Reason {
	all := slices.Clone(d.Reasons)
	for i := range d.Refusals {
		if r := &d.Refusals[i]; !d.explained(r) {
			all = append(all, isolation.Reason{
				Code: isolation.Code(r.Code), Severity: isolation.High, Text: r.Text, Culprit: r.Culprit, Fix: r.Fix,
			})
		}
	}
	slices.SortStableFunc(all, func(a, b isolation.Reason) int { return a.Severity.Compare(b.Severity) })
	return all
}

// explained reports whether a refusal says what the verdict or the config says already.
// Whether the config names what goes with a function matters once it names the function.
func (d *Device) explained(r *plan.Refusal) bool {
	switch r.Code {
	case plan.NotIsolated, plan.NotViable, plan.NoReset, plan.Dead:
		return len(d.Reasons) > 0
	case plan.NotOurs:
		return true
	case plan.MateNotSelected:
		return d.has(plan.NotOurs)
	case plan.OtherOfGroup: // matters of a function that a claim could have otherwise
		return d.has(plan.NotOurs) || d.has(plan.Forbidden) || d.has(plan.NotViable)
	default:
		return false
	}
}

// InUse reports whether the function must not be taken, whatever the node config says: the
// node uses it, or it has VFs, or its PF may be a tenant's.
func (d *Device) InUse() bool {
	return slices.ContainsFunc(d.Refusals, func(r plan.Refusal) bool { return r.Code == plan.Forbidden && r.Culprit == nil })
}

func (d *Device) has(code plan.Code) bool {
	return slices.ContainsFunc(d.Refusals, func(r plan.Refusal) bool { return r.Code == code })
}
